"""`wrap` builds the Var of a Python object that existed before the frame (Dynamo's VariableBuilder).

It chooses the Var class by the type of the object, and adds the guards under which that choice is valid in later calls.
"""

from __future__ import annotations

import collections
import decimal
import enum
import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.jit._state import _try_get_jit_cached_function

from inductor.subclasses.wrapper_tensors import is_jagged, is_wrapper_class

from .. import _C
from ..core.guard_predicates import equal
from ..core.source import (
    AttrSource,
    ConstSource,
    FuncPartSource,
    LocalSource,
    Source,
)
from ..errors import SkipFrame
from .containers.existing_iterators import COUNT, OVER_CONSTANTS, wrap_iterator
from .containers.mapping import DictVar
from .containers.ranges import RangeVar
from .containers.sequence import SliceVar, TupleVar
from .higher_order import (  # noqa: F401  registers the models of these modules
    autograd_functions,
    backward_calls,
    control_flow,
    derivatives,
    flex_attention,
    forward_ad,
    module_hooks,
    node_hooks,
    saved_hooks,
    tensor_hooks,
    transforms,
    wrappers,
)
from .numbers import text_templates  # noqa: F401  registers the models
from .numbers.dynamic import wrap_number, wrap_tensor
from .numbers.numpy_calls import NUMPY_FUNCTIONS, wrap_function
from .numbers.numpy_calls import wrap_number as wrap_numpy_number
from .numbers.numpy_scalars import NUMPY_NUMBERS
from .objects.annotations import TYPE_FORMS, wrap_type_form
from .objects.classes import ClassVar
from .objects.descriptors import wrap_descriptor
from .objects.enums import member
from .objects.exceptions import ExceptionVar
from .objects.functions import BoundMethodVar, BuiltinVar, FunctionVar, PartialVar
from .objects.lru_cache import CACHED, CachedFunctionVar
from .objects.modules import PyModuleVar
from .objects.originals import guard_parts
from .objects.suspended_frames import wrap_suspended
from .objects.weak_references import WeakRefVar
from .protocol.base import Var
from .protocol.class_reads import lookup
from .protocol.const import PASSED_ON, ConstVar, MethodVar, PassedConstVar
from .registry import call_model
from .stdlib import text_streams  # noqa: F401  registers the models
from .stdlib.debuggers import wrap_watcher
from .stdlib.locks import LOCKS, SharedLockVar
from .stdlib.pure_functions import PATTERNS, wrap_decimal, wrap_pattern
from .stdlib.random_generators import is_rng, wrap_rng
from .torch_objects import (  # noqa: F401  registers the models of these modules
    config_patches,
    covariance,
    hook_handles,
    in_place_collectives,
    lazy_modules,
    nested_compile,
    optimizers,
    override_models,
    saved_tensors,
    scaled_operators,
    tensor_copy,
    tensor_state,
    torch_sizes,
)
from .torch_objects.contexts import DeviceVar, wrap_autocast
from .torch_objects.distributed_tensors import PLACEMENTS, wrap_placement
from .torch_objects.generators import wrap_generator
from .torch_objects.nested_compile import wrap_compiled
from .torch_objects.nnmodule import NNModuleVar
from .torch_objects.numpy_functions import wrap_numpy
from .torch_objects.overrides import DescriptorVar
from .torch_objects.process_groups import PROCESS_GROUPS, wrap_process_group
from .torch_objects.tensor_subclass import is_traced, of_input
from .torch_objects.torch_functions import (
    CONSTANT_CLASSES,
    DisabledVar,
    TorchFunctionVar,
    is_torch_function,
)
from .torch_objects.user_directives import behind_mark, disabled_for_dynamo, wrap_marked
from .torch_objects.wrapper_subclass import is_captured
from .torch_objects.wrapper_subclass import of_input as of_wrapper_input
from .tracer import Tracer
from .wrap_containers import (
    EQUAL_TYPES,
    wrap_deque,
    wrap_dict,
    wrap_list,
    wrap_mapping_proxy,
    wrap_object,
    wrap_opaque,
    wrap_set,
)

IDENTITY_TYPES = (
    torch.dtype, torch.layout, torch.memory_format, type(Ellipsis), type(NotImplemented), types.CodeType,
)  # fmt: skip


def wrap(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of `value`, guarded if it has a source.

    Constants are guarded by value, containers by type and length (items when they are wrapped), tensors by their
    metadata, functions by their code, other objects by type.  Attributes are guarded when the program reads them."""
    if type(value) in (int, float) and (number := wrap_number(tx, value, source)) is not None:
        return number
    if type(value) in PASSED_ON and tx.known is not None and isinstance(source, LocalSource):
        return PassedConstVar(tx, value, source)
    if value is None or type(value) in EQUAL_TYPES:
        tx.guard(source, "ID" if value is None else "EQUALS", value)
        return ConstVar(value, source)
    return _build(tx, value, source)


def _hides_its_class(cls: type) -> bool:
    """Whether the class overrides `__class__`, which isinstance() reads. Not cached: each capture guards the answer."""
    return lookup(cls, "__class__") is not object.__dict__["__class__"]


def _build(tx: Tracer, value: Any, source: Source | None) -> Var:
    cls: type = type(value)  # not isinstance(), which reads `__class__` and may run the program's `__getattribute__`
    if cls in weakref.ProxyTypes:  # any operation on a proxy acts on its referent
        return wrap_opaque(tx, value, source)
    if _hides_its_class(cls):
        return wrap_object(tx, value, source)
    if issubclass(cls, torch.Tensor):
        return _tensor(tx, value, source)
    if issubclass(cls, enum.Enum):
        tx.guard(source, "ID", value)
        return member(value)
    if issubclass(cls, IDENTITY_TYPES):
        tx.guard(source, "ID", value)
        return ConstVar(value, source)
    if issubclass(cls, CONSTANT_CLASSES):
        tx.guard(source, "EQUALS", value)
        return (DeviceVar if issubclass(cls, torch.device) else ConstVar)(value, source)
    if issubclass(cls, TYPE_FORMS):
        return wrap_type_form(tx, value, source)
    if issubclass(cls, NUMPY_NUMBERS):
        return wrap_numpy_number(tx, value, source)
    if (of_numpy := wrap_numpy(tx, value, source)) is not None:
        return of_numpy
    if issubclass(cls, NUMPY_FUNCTIONS):
        return wrap_function(tx, value, source)
    if issubclass(cls, nn.Module):
        tx.guard(source, "TYPE", type(value))
        return NNModuleVar(value, source)
    if is_rng(value):
        return wrap_rng(tx, value, source)
    if type(value) is torch.autocast:
        return wrap_autocast(tx, value, source)
    if type(value) is torch.Generator:
        return wrap_generator(tx, value, source)
    for types_, build in _BUILDERS:
        if issubclass(cls, types_):
            return build(tx, value, source)
    return _callable_orwrap_object(tx, value, source)


def _tensor(tx: Tracer, value: torch.Tensor, source: Source | None) -> Var:
    plain = type(value) in (torch.Tensor, nn.Parameter, nn.Buffer)
    if not plain and not is_traced(type(value)):
        return wrap_opaque(tx, value, source)
    if source is None:
        source = ConstSource.of(value, "<tensor constant>")
    if (inner := tx.inner_tensors.get(id(value))) is not None:
        tx.guard(source, "SAME", inner[0])
        return inner[1]()
    base = value._base if value._is_view() else None
    if any(map(_is_special, (value,) if base is None else (value, base))):
        return wrap_opaque(tx, value, source)
    wraps = not plain and is_wrapper_class(type(value))
    if wraps and not is_captured(value):
        return wrap_opaque(tx, value, source)
    alias: Any = torch._C._is_alias_of  # type: ignore[attr-defined]  # not in torch's stubs
    if base is not None and not wraps and not alias(value, base):  # a view whose memory was replaced by setting `.data`
        return wrap_opaque(tx, value, source)
    tensor = wrap_tensor(tx, value, source)
    if tensor is None:
        return wrap_opaque(tx, value, source)
    if plain:
        return tensor
    own = inspect.getattr_static(torch.Tensor, "__torch_function__")
    function: Any = getattr(own, "__func__", None)
    if inspect.getattr_static(type(value), "__torch_function__") is own and type(function) is types.FunctionType:
        guard_parts(tx, function)
    return of_wrapper_input(tx, tensor, value, source) if wraps else of_input(tensor, value, source)


def _is_special(value: torch.Tensor) -> bool:
    """Whether a tensor is not plain strided memory: sparse, quantized, nested, or a zero tensor of autograd. Jagged
    tensors are wrappers around strided memory."""
    if is_jagged(value):
        return False
    return value.layout != torch.strided or value.is_quantized or value.is_nested or torch._is_zerotensor(value)


def _function(tx: Tracer, value: types.FunctionType, source: Source | None) -> Var:
    if is_torch_function(value):
        tx.guard(source, "ID", value)
        guard_parts(tx, value)
        return TorchFunctionVar(value, source)
    modelled = value if call_model(value) is not None else behind_mark(value)
    if call_model(modelled) is not None:
        tx.guard(source, "ID", value)
        guard_parts(tx, value)
        return BuiltinVar(modelled, source)
    original = disabled_for_dynamo(value)
    if original is not None:
        tx.guard(source, "ID", value)
        return wrap(tx, original, source and AttrSource(source, "_torchdynamo_orig_callable"))
    marked = wrap_marked(value, source) or wrap_watcher(value) or wrap_compiled(value, source)
    if marked is not None:
        tx.guard(source, "ID", value)
        return marked
    if source is not None:
        from_code = _part(source, "__code__")
        tx.guard(source, "TYPE", types.FunctionType)
        tx.guard(from_code, "ID", value.__code__)
    return FunctionVar(value, source)


def _script_function(tx: Tracer, value: torch.jit.ScriptFunction[Any, Any], source: Source | None) -> Var:
    """A function that `torch.jit.script` compiled: its Python original is traced. What `torch.jit.trace` recorded may
    differ from the original, and is not."""
    original = getattr(value, "_torchdynamo_inline", None)
    scripted = _try_get_jit_cached_function(original) if isinstance(original, types.FunctionType) else None
    if scripted is None or scripted.qualified_name != value.qualified_name:
        return wrap_opaque(tx, value, source)
    tx.guard(source, "ID", value)
    return wrap(tx, original, source and AttrSource(source, "_torchdynamo_inline"))


def _part(source: Source, part: str) -> Source:
    return FuncPartSource(source, part)


def _method(tx: Tracer, value: types.MethodType, source: Source | None) -> Var:
    tx.guard(source, "TYPE", types.MethodType)
    if is_rng(value.__self__):
        tx.guard(AttrSource(source, "__func__") if source else None, "ID", value.__func__)
        return MethodVar(tx.wrap(value.__self__, AttrSource(source, "__self__") if source else None), value.__name__)
    fn = tx.wrap(value.__func__, AttrSource(source, "__func__") if source else None)
    return BoundMethodVar(fn, tx.wrap(value.__self__, AttrSource(source, "__self__") if source else None), source)


def _class(tx: Tracer, value: type, source: Source | None) -> Var:
    if value.__mro__ is None:
        raise SkipFrame("a class under construction")
    tx.guard(source, "ID", value)
    return ClassVar(value, source)


def _module(tx: Tracer, value: types.ModuleType, source: Source | None) -> Var:
    tx.guard(source, "ID", value)
    return PyModuleVar(value, source)


def _partial(tx: Tracer, value: functools.partial, source: Source | None) -> Var:
    tx.guard(source, "TYPE", functools.partial)

    def part(name: str) -> Source | None:
        return AttrSource(source, name) if source else None

    args, kwargs = tx.wrap(value.args, part("args")), tx.wrap(value.keywords, part("keywords"))
    if not isinstance(args, TupleVar) or not isinstance(kwargs, DictVar):  # too many to be wrapped
        return wrap_opaque(tx, value, source)
    return PartialVar(tx.wrap(value.func, part("func")), args.items, dict(kwargs.items), source)


def _range(tx: Tracer, value: range, source: Source | None) -> Var:
    tx.guard(source, "PREDICATE", (functools.partial(equal, value), (), f"== {value!r}"))
    return RangeVar(value, source)


def _slice(tx: Tracer, value: slice, source: Source | None) -> Var:
    tx.guard(source, "PREDICATE", (functools.partial(equal, value), (), f"== {value!r}"))
    return SliceVar(ConstVar(value.start), ConstVar(value.stop), ConstVar(value.step), source)


def _descriptor(tx: Tracer, value: Any, source: Source | None) -> Var:
    exact = type(value) in (property, staticmethod, classmethod)
    return (wrap_descriptor if exact else wrap_object)(tx, value, source)


def _lock(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    return SharedLockVar(tx, value, source)


def _iterator(tx: Tracer, value: Any, source: Source | None) -> Var:
    return wrap_iterator(tx, value, source) or wrap_opaque(tx, value, source)


def _decimal(tx: Tracer, value: Any, source: Source | None) -> Var:
    return (wrap_decimal if type(value) is decimal.Decimal else wrap_opaque)(tx, value, source)


def _callable_orwrap_object(tx: Tracer, value: Any, source: Source | None) -> Var:
    cls: type = type(value)
    if issubclass(cls, _C.CompiledFunction):
        tx.guard(source, "ID", value)
        return tx.wrap(value.__wrapped__, AttrSource(source, "__wrapped__") if source else None)
    if issubclass(cls, _C.DisabledFunction):
        tx.guard(source, "ID", value)
        return DisabledVar(value, source)
    if is_torch_function(value):
        tx.guard(source, "ID", value)
        return TorchFunctionVar(value, source)
    if issubclass(cls, types.GetSetDescriptorType) and value.__objclass__ is torch._C.TensorBase:
        tx.guard(source, "ID", value)
        return DescriptorVar(value, source)
    owner = value.__self__ if issubclass(cls, types.BuiltinMethodType | types.MethodWrapperType) else None
    # functions created by pybind11 also have a `__self__`, but are not methods of it
    if owner is not None and not isinstance(owner, types.ModuleType | type) and _finds(type(owner), value.__name__):
        # `items.append` is a new object at each attribute read, so guard its owner and name, not its identity
        tx.guard(source, "TYPE", cls)
        tx.guard(AttrSource(source, "__name__") if source else None, "EQUALS", value.__name__)
        return MethodVar(tx.wrap(owner, AttrSource(source, "__self__") if source else None), value.__name__)
    if issubclass(cls, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        tx.guard(source, "ID", value)
        return BuiltinVar(value, source)
    # hashing it runs no user code
    if isinstance(cls.__hash__, types.WrapperDescriptorType) and call_model(value) is not None:
        tx.guard(source, "ID", value)
        return BuiltinVar(value, source)
    return wrap_object(tx, value, source)


def _finds(cls: type, name: str) -> bool:
    return any(name in base.__dict__ for base in cls.__mro__)


def _exception(tx: Tracer, value: BaseException, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    args = tx.wrap(value.args, AttrSource(source, "args") if source else None)
    if not isinstance(args, TupleVar):  # too many to be wrapped
        return wrap_opaque(tx, value, source)
    return ExceptionVar(type(value), args.items, source, value)


def _cached(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "ID", value)
    return CachedFunctionVar(value, source)


def _weak(tx: Tracer, value: weakref.ReferenceType[Any], source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    tx.weak_references.append(value)
    return WeakRefVar(value, source)


_BUILDERS: list[tuple[Any, Callable[[Any, Any, Source | None], Var]]] = [
    ((list, tuple), wrap_list),
    (dict, wrap_dict),
    ((set, frozenset), wrap_set),
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (_C.SuspendedFrame, wrap_suspended),
    (type, _class),
    (types.ModuleType, _module),
    (weakref.ReferenceType, _weak),
    (functools.partial, _partial),
    (range, _range),
    (torch.jit.ScriptFunction, _script_function),
    (BaseException, _exception),
    (CACHED, _cached),
    (slice, _slice),
    (collections.deque, wrap_deque),
    (types.MappingProxyType, wrap_mapping_proxy),
    (PATTERNS, wrap_pattern),
    (LOCKS, _lock),
    (decimal.Decimal, _decimal),
    ((property, staticmethod, classmethod), _descriptor),
    ((COUNT, *OVER_CONSTANTS), _iterator),
    (PROCESS_GROUPS, wrap_process_group),
    (PLACEMENTS, wrap_placement),
]
