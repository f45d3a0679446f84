"""`wrap` builds the Var of a Python object that existed before the frame (Dynamo's VariableBuilder).

It chooses the Var class by the type of the object, and adds the guards under which that choice is valid in later calls.
"""

from __future__ import annotations

import array
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
from ..core.guard_predicates import dict_contents, equal, same_keys, same_set
from ..core.source import (
    AttrSource,
    CallSource,
    ConstSource,
    DictItemSource,
    DictKeySource,
    FuncPartSource,
    LocalSource,
    SeqItemSource,
    Source,
)
from ..errors import SkipFrame
from .containers.deque import DequeVar
from .containers.existing_iterators import COUNT, OVER_CONSTANTS, wrap_iterator
from .containers.lazy_containers import LazyContainerVar, LongSequenceVar
from .containers.mapping import DictVar, key_of
from .containers.ranges import RangeVar
from .containers.sequence import ListVar, SizeVar, SliceVar, TupleVar
from .containers.sets import SetVar
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
)
from .numbers.dynamic import wrap_number, wrap_tensor
from .numbers.numpy_calls import NUMPY_FUNCTIONS, wrap_function
from .numbers.numpy_calls import wrap_number as wrap_numpy_number
from .numbers.numpy_scalars import NUMPY_NUMBERS
from .objects.annotations import TYPE_FORMS, wrap_type_form
from .objects.builtin_instances import SCALARS, BuiltinInstanceVar, kind_of
from .objects.classes import ClassVar
from .objects.descriptors import ProxyVar, wrap_descriptor
from .objects.enums import member
from .objects.exceptions import ExceptionVar
from .objects.functions import BoundMethodVar, BuiltinVar, FunctionVar, PartialVar
from .objects.instances import InstanceVar
from .objects.lru_cache import CACHED, CachedFunctionVar
from .objects.modules import PyModuleVar
from .objects.namedtuple import NamedTupleVar, acts_as_tuple
from .objects.originals import guard_parts
from .objects.simple_namespace import NamespaceVar
from .objects.suspended_frames import wrap_suspended
from .objects.weak_references import WeakRefVar
from .protocol.base import Var
from .protocol.class_reads import lookup
from .protocol.const import PASSED_ON, ConstVar, MethodVar, PassedConstVar
from .protocol.opaque import OpaqueVar
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
    lazy_modules,
    nested_compile,
    optimizers,
    override_models,
    saved_tensors,
    scaled_operators,
    tensor_copy,
    tensor_state,
)
from .torch_objects.contexts import DeviceVar, wrap_autocast
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

EQUAL_TYPES = (int, float, complex, str, bytes, bool)
IDENTITY_TYPES = (
    torch.dtype, torch.layout, torch.memory_format, type(Ellipsis), type(NotImplemented), types.CodeType,
)  # fmt: skip

# Types of dict keys that are constants, compared by value or by identity.
KNOWN_KEYS: tuple[type, ...] = (
    *EQUAL_TYPES, type(None), enum.Enum, torch.dtype, *CONSTANT_CLASSES, type, types.FunctionType, types.ModuleType,
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.GetSetDescriptorType, *TYPE_FORMS,
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
        return _opaque(tx, value, source)
    if _hides_its_class(cls):
        return _object(tx, value, source)
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
    return _callable_or_object(tx, value, source)


def _opaque(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    return OpaqueVar(value, source)


def _tensor(tx: Tracer, value: torch.Tensor, source: Source | None) -> Var:
    plain = type(value) in (torch.Tensor, nn.Parameter, nn.Buffer)
    if not plain and not is_traced(type(value)):
        return _opaque(tx, value, source)
    if source is None:
        source = ConstSource.of(value, "<tensor constant>")
    if (inner := tx.inner_tensors.get(id(value))) is not None:
        tx.guard(source, "SAME", inner[0])
        return inner[1]()
    base = value._base if value._is_view() else None
    if any(map(_is_special, (value,) if base is None else (value, base))):
        return _opaque(tx, value, source)
    wraps = not plain and is_wrapper_class(type(value))
    if wraps and not is_captured(value):
        return _opaque(tx, value, source)
    alias: Any = torch._C._is_alias_of  # type: ignore[attr-defined]  # not in torch's stubs
    if base is not None and not wraps and not alias(value, base):  # a view whose memory was replaced by setting `.data`
        return _opaque(tx, value, source)
    tensor = wrap_tensor(tx, value, source)
    if tensor is None:
        return _opaque(tx, value, source)
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
    return (
        value.layout != torch.strided or value.is_quantized or value.is_nested or torch._is_zerotensor(value)
    )


def _list(tx: Tracer, value: Any, source: Source | None) -> Var:
    structseq = _plain_struct_sequence(type(value))
    if type(value) not in (list, tuple, torch.Size) and not structseq and not _plain_named_tuple(type(value)):
        return _object(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    if len(value) > tx.size_limit:
        return LongSequenceVar(value, source)
    items = [tx.wrap(item, SeqItemSource(source, i) if source else None) for i, item in enumerate(value)]
    if isinstance(value, torch.Size):
        return SizeVar(items, source)
    if type(value) not in (list, tuple):
        return NamedTupleVar(type(value), items, source)
    return TupleVar(items, source) if isinstance(value, tuple) else ListVar(items, source)


def _plain_struct_sequence(cls: type) -> bool:
    """Whether the attributes of instances of `cls`, a class of C, are just the items of the tuple. `time.struct_time`
    has more attributes than items, `os.stat_result` other ones."""
    items = getattr(cls, "n_sequence_fields", None)
    return items is not None and items == getattr(cls, "n_fields", None) and not getattr(cls, "n_unnamed_fields", 0)


def _dict(tx: Tracer, value: Any, source: Source | None) -> Var:
    if type(value) not in (dict, collections.OrderedDict, collections.defaultdict):
        return _object(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    if len(value) > tx.size_limit:
        return _long(tx, value, source)
    items = _items(tx, value, source)
    factory = None
    if isinstance(value, collections.defaultdict):
        factory = tx.wrap(value.default_factory, AttrSource(source, "default_factory") if source else None)
        factory = None if value.default_factory is None else factory
    return DictVar(items, source, type(value), factory)


def _long(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    return LazyContainerVar(value, source)


def _items(tx: Tracer, value: dict[Any, Any], source: Source | None) -> dict[Any, Var]:
    """The items of a dict.  Later calls find the values by key if all keys are constants, else by position."""
    if all(isinstance(k, KNOWN_KEYS) for k in value):
        tx.guard(source, "DICT_KEYS", tuple(value))
        # a copy: wrapping a value can import modules of this project, whose names the program's dict may contain
        return {k: tx.wrap(v, DictItemSource(source, k) if source else None) for k, v in dict(value).items()}
    tx.guard(source, "LEN", len(value))
    values = CallSource(source, _values, "values") if source else None
    found = {}
    for place, (key, item) in enumerate(list(value.items())):
        key_var = _key(tx, key, DictKeySource(source, place) if source else None)
        found[tx.existing_key(value, key_var)] = tx.wrap(item, SeqItemSource(values, place) if values else None)
    return found


def _key(tx: Tracer, key: Any, source: Source | None) -> Var:
    """The Var of a dict key.  Constants are guarded by EQUALS: a function as a key by identity, not by its code."""
    if isinstance(key, KNOWN_KEYS):
        tx.guard(source, "EQUALS", key)
    return tx.wrap(key, source)


def _values(held: dict[Any, Any]) -> list[Any]:
    return list(held.values())


def _plain_named_tuple(cls: type) -> bool:
    """Whether a class is a namedtuple whose instances store nothing but the fields."""
    return hasattr(cls, "_fields") and acts_as_tuple(cls)


def _set(tx: Tracer, value: Any, source: Source | None) -> Var:
    if type(value) not in (set, frozenset):
        return _object(tx, value, source)
    if len(value) > tx.size_limit:
        return _long(tx, value, source)
    functions = [each for each in value if isinstance(each, _HASHED_BY_IDENTITY)]
    rest = value.difference(functions) if functions else value
    if not all(isinstance(k, (*EQUAL_TYPES, enum.Enum, torch.dtype, type, type(None))) for k in rest):
        return _set_of_objects(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    frozen = frozenset(value)
    tx.guard(source, "PREDICATE", (functools.partial(same_set, frozen), (), f"=={set(frozen)!r}"))
    if not functions:
        return SetVar(value, source, type(value))
    keys = [key_of(tx, tx.wrap(each, ConstSource.of(each, each.__name__))) for each in functions]
    return SetVar([*rest, *keys], source, type(value))


def _set_of_objects(tx: Tracer, value: set[Any] | frozenset[Any], source: Source | None) -> Var:
    """A set with items that are not constants: each item is guarded by its position in the order of iteration."""
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    items = CallSource(source, list, "list") if source else None
    keys = []
    for place, item in enumerate(value):
        var = _key(tx, item, SeqItemSource(items, place) if items else None)
        keys.append(tx.existing_key(value, var))
    return SetVar(keys, source, type(value))


# Functions compare by identity.
_HASHED_BY_IDENTITY = (types.FunctionType, types.BuiltinFunctionType)


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
        return _opaque(tx, value, source)
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
        return _opaque(tx, value, source)
    return PartialVar(tx.wrap(value.func, part("func")), args.items, dict(kwargs.items), source)


def _range(tx: Tracer, value: range, source: Source | None) -> Var:
    tx.guard(source, "PREDICATE", (functools.partial(equal, value), (), f"== {value!r}"))
    return RangeVar(value, source)


def _slice(tx: Tracer, value: slice, source: Source | None) -> Var:
    tx.guard(source, "PREDICATE", (functools.partial(equal, value), (), f"== {value!r}"))
    return SliceVar(ConstVar(value.start), ConstVar(value.stop), ConstVar(value.step), source)


def _deque(tx: Tracer, value: Any, source: Source | None) -> Var:
    if type(value) is not collections.deque:
        return _object(tx, value, source)
    if len(value) > tx.size_limit:
        return _long(tx, value, source)
    tx.guard(source, "TYPE", type(value))
    tx.guard(source, "LEN", len(value))
    tx.guard(AttrSource(source, "maxlen") if source else None, "EQUALS", value.maxlen)
    items = [tx.wrap(item, SeqItemSource(source, i) if source else None) for i, item in enumerate(value)]
    return DequeVar(items, value.maxlen, source)


def _proxy(tx: Tracer, value: types.MappingProxyType[Any, Any], source: Source | None) -> Var:
    """The Var of a MappingProxyType, modelled by a copy of its items; opaque if a key is not a plain constant."""
    if not all(isinstance(k, EQUAL_TYPES) for k in value):
        return _opaque(tx, value, source)
    if source is not None:
        tx.guard(source, "TYPE", types.MappingProxyType)
        tx.guard(source, "PREDICATE", (functools.partial(same_keys, tuple(value)), (), f"keys {tuple(value)!r}"))
    items = CallSource(source, dict, "dict") if source else None
    held = DictVar({k: tx.wrap(v, DictItemSource(items, k) if items else None) for k, v in value.items()})
    return ProxyVar(held, source)


def _descriptor(tx: Tracer, value: Any, source: Source | None) -> Var:
    exact = type(value) in (property, staticmethod, classmethod)
    return (wrap_descriptor if exact else _object)(tx, value, source)


def _lock(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    return SharedLockVar(tx, value, source)


def _iterator(tx: Tracer, value: Any, source: Source | None) -> Var:
    return wrap_iterator(tx, value, source) or _opaque(tx, value, source)


def _decimal(tx: Tracer, value: Any, source: Source | None) -> Var:
    return (wrap_decimal if type(value) is decimal.Decimal else _opaque)(tx, value, source)


def _callable_or_object(tx: Tracer, value: Any, source: Source | None) -> Var:
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
    owner = value.__self__ if issubclass(cls, types.BuiltinMethodType) else None
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
    return _object(tx, value, source)


def _finds(cls: type, name: str) -> bool:
    return any(name in base.__dict__ for base in cls.__mro__)


def _exception(tx: Tracer, value: BaseException, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    args = tx.wrap(value.args, AttrSource(source, "args") if source else None)
    if not isinstance(args, TupleVar):  # too many to be wrapped
        return _opaque(tx, value, source)
    return ExceptionVar(type(value), args.items, source, value)


def _builtin_instance(tx: Tracer, value: Any, source: Source | None, kind: type) -> Var:
    """The Var of an instance of a subclass of a built-in type.  The contents are read with the methods of the built-in
    type, since the subclass may override them."""
    contents = _CONTENTS[kind]
    held = contents(value)
    if kind in SCALARS:
        inner = CallSource(source, contents, kind.__name__) if source else None
        base = tx.wrap(held, inner)
        return BuiltinInstanceVar(value, source, type(value), kind, ConstVar(base.constant()))
    if isinstance(held, dict) and not all(isinstance(k, EQUAL_TYPES) for k in held):
        return _opaque(tx, value, source)
    inner = CallSource(source, contents, kind.__name__) if source else None
    base = wrap(tx, held, inner)
    if isinstance(base, OpaqueVar):
        return _opaque(tx, value, source)
    if isinstance(base, DictVar):
        base.cls = kind
    base.source = source
    return BuiltinInstanceVar(value, source, type(value), kind, base)


_CONTENTS: dict[type, Callable[[Any], Any]] = {
    dict: dict_contents,
    collections.OrderedDict: dict_contents,
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: set,  # copying a set calls neither `__hash__` nor `__eq__`
    frozenset: frozenset,
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    bytes: bytes.__bytes__,
}


def _cached(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "ID", value)
    return CachedFunctionVar(value, source)


def _weak(tx: Tracer, value: weakref.ReferenceType[Any], source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    tx.weak_references.append(value)
    return WeakRefVar(value, source)


def _object(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", type(value))
    kind = kind_of(type(value))
    if kind is not None and not issubclass(type(value), collections.defaultdict):
        return _builtin_instance(tx, value, source, kind)
    if issubclass(type(value), types.SimpleNamespace):
        return NamespaceVar(value, source)
    if kind is not None or not _plain_layout(type(value)):
        return _opaque(tx, value, source)
    return InstanceVar(value, source)


def _plain_layout(cls: type) -> bool:
    """Whether instances have no C-level contents apart from their attributes."""
    return not issubclass(cls, collections.deque | bytearray | array.array)


_BUILDERS: list[tuple[Any, Callable[[Any, Any, Source | None], Var]]] = [
    ((list, tuple), _list),
    (dict, _dict),
    ((set, frozenset), _set),
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
    (collections.deque, _deque),
    (types.MappingProxyType, _proxy),
    (PATTERNS, wrap_pattern),
    (LOCKS, _lock),
    (decimal.Decimal, _decimal),
    ((property, staticmethod, classmethod), _descriptor),
    ((COUNT, *OVER_CONSTANTS), _iterator),
    (PROCESS_GROUPS, wrap_process_group),
]

