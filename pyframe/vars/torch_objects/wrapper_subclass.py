"""Traceable wrapper subclasses (with `__tensor_flatten__`). Their instances enter the graph unchanged; the compiler,
not the bytecode tracer, traces what `__torch_dispatch__` does with the inner tensors."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor.subclasses.wrapper_tensors import NoForm, is_wrapper, is_wrapper_class, methods_of, parts_of, same_context

from ...core.source import AttrSource, ConstSource, FuncPartSource, Source
from ..codegen import Codegen
from ..containers.sequence import TupleVar
from ..numbers.dynamic import guard_metadata
from ..objects.instantiation import CONSTRUCTORS
from ..objects.lookup import guarded_lookup, lookup
from ..objects.originals import guard_parts, in_torch
from ..protocol.base import Var
from ..protocol.class_reads import MISSING, note_class
from ..protocol.const import ConstVar, make
from ..tracer import Tracer
from .tensor import TensorVar
from .tensor_subclass import TensorSubclassVar, is_traced

# Tests for instances that cannot be graph inputs because something outside of them belongs to their state.
WITH_OUTER_STATE: list[Callable[[torch.Tensor], bool]] = []
_METHODS = ("__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__", "__new__", "__init__")
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size)


class WrapperTensorVar(TensorSubclassVar):
    """An instance of a wrapper subclass. `base` is the same tensor in the graph; its fake tensor is an instance of the
    class that contains fake tensors. Graph nodes read the inner tensors from it."""

    __slots__ = ("inner", "names")

    def __init__(self, base: TensorVar, value: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(base, type(base.fake), value, source)
        self.inner: dict[str, Var] = {}  # inner tensors that were read
        self.names = parts_of(base.fake)[0]

    def _instance_attr(self, tx: Tracer, name: str) -> Var | None:
        if name in self.attrs:
            return self.attrs[name]
        if name in self.names:
            return self.inner_tensor(tx, name)
        held = getattr(self.base.fake, "__dict__", {})
        if name in held and _are_ragged(held[name], self.base.fake.shape):
            return TupleVar(self.base.sizes().items)
        if self.value is not MISSING:
            return super()._instance_attr(tx, name)
        if name not in held:
            return None
        return _constant(self, tx, name, held[name])

    def read_slot(self, tx: Tracer, name: str, raw: types.MemberDescriptorType) -> Var:
        if name in self.names:
            return self.inner_tensor(tx, name)
        if self.value is MISSING and hasattr(self.base.fake, name):
            return _constant(self, tx, name, getattr(self.base.fake, name))
        return super().read_slot(tx, name, raw)

    def inner_tensor(self, tx: Tracer, name: str) -> Var:
        """The current inner tensor of attribute `name`."""
        fake = getattr(self.base.fake, name)
        if self.value is not MISSING and name not in self.inner:
            traced = tx.traced(getattr(self.value, name))
            if traced is not None:
                self.inner[name] = traced
                return traced
        known = self.inner.get(name)
        stale = known is not None and known.source is None and _base_of(known).fake is not fake
        if known is None or stale or _base_of(known).node._erased:
            read = tx.graph.call(getattr, [self.base, name], {})
            assert isinstance(read, TensorVar)
            known = self.inner[name] = read if read.owner is None else read.owner
        return known

    def store(self, tx: Tracer, name: str, value: Var | None) -> None:
        if name in self.names or self.value is MISSING:
            self.unsupported(tx, f"setting attribute {name!r}")
        super().store(tx, name, value)

    def field(self, tx: Tracer, name: str) -> Var | None:
        return self.fields(tx).get(name)

    def fields(self, tx: Tracer) -> dict[str, Var]:
        return self.unsupported(tx, "__dict__")

    def rebuild_empty(self, cg: Codegen) -> None:
        cg.load(self.base)


def _base_of(var: Var) -> TensorVar:
    return var.base if isinstance(var, TensorSubclassVar) else var  # type: ignore[return-value]


def _are_ragged(value: Any, sizes: torch.Size) -> bool:
    """Whether an attribute of a jagged tensor holds its sizes."""
    if type(value) is not tuple or len(value) != len(sizes):
        return False
    nested = [isinstance(size, torch.SymInt) and size.node.is_nested_int() for size in sizes]
    return any(nested) and all(a is b or type(a) is type(b) and bool(a == b) for a, b in zip(value, sizes, strict=True))


def _constant(var: WrapperTensorVar, tx: Tracer, name: str, value: Any) -> Var:
    """An attribute of an instance that the graph creates. It is constant if the class computes it from the context and
    from known sizes."""
    values: Sequence[Any] = value if type(value) in (tuple, torch.Size) else (value,)
    if not all(type(each) in _PLAIN for each in values):
        return var.unsupported(tx, f"attribute {name!r} of an instance that the graph creates")
    return ConstVar(value) if isinstance(value, torch.dtype | torch.device) else make(value)


def of_result(tensor: TensorVar) -> TensorVar:
    """Set the owner of an operator's result if it is an instance of a wrapper subclass."""
    if is_wrapper(tensor.fake):
        tensor.owner = WrapperTensorVar(tensor)
    return tensor


def of_input(tx: Tracer, tensor: TensorVar, value: torch.Tensor, source: Source) -> Var:
    """The Var of a wrapper subclass instance that existed before the frame; `tensor` is the graph's input for it."""
    wrapper = tensor.owner = WrapperTensorVar(tensor, value, source)
    _guard(tx, value, source, tensor.fake, lambda: wrapper)
    return wrapper


def makes_instances(cls: type) -> bool:
    """Whether constructing `cls` becomes a single graph node."""
    if not issubclass(cls, torch.Tensor):
        return False
    constructs = isinstance(lookup(cls, "__new__"), staticmethod)  # its own, or that of a class of the program
    return constructs and is_wrapper_class(cls) and is_traced(cls) and not any(map(_writes_globals, methods_of(cls)))


def make_instance(tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`cls(*args, **kwargs)` with tensors of the graph."""
    _guard_class(tx, cls)
    tensors = [arg.base if isinstance(arg, TensorSubclassVar) else arg for arg in args]
    named = {name: arg.base if isinstance(arg, TensorSubclassVar) else arg for name, arg in kwargs.items()}
    instance = tx.graph.call(_maker(cls), tensors, named)
    if not isinstance(instance, TensorVar) or not isinstance(instance.owner, WrapperTensorVar):
        return tx.graph_break("unsupported-object", f"creating an instance of {cls.__qualname__}")
    var_of_fake = {id(each.fake): each for each in (*tensors, *named.values()) if isinstance(each, TensorVar)}
    for name in instance.owner.names:
        if (same := var_of_fake.get(id(getattr(instance.fake, name)))) is not None:
            instance.owner.inner[name] = same if same.owner is None else same.owner
    return instance.owner


@functools.cache
def _maker(cls: type) -> Callable[..., Any]:
    """The function that the graph node calls."""

    def make(*args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)

    make.__name__ = f"make_{cls.__name__}"
    make.__qualname__ = f"{cls.__module__}.{cls.__qualname__}"
    make.__module__ = __name__
    return make


def is_captured(value: torch.Tensor) -> bool:
    """Whether a wrapper subclass instance, and those nested in it, can be graph inputs."""
    try:
        names, context = parts_of(value)
    except NoForm:
        return False
    if not names or not same_context(context, context) or any(map(_writes_globals, methods_of(type(value)))):
        return False
    if any(has_outer_state(value) for has_outer_state in WITH_OUTER_STATE):
        return False
    parts = [getattr(value, name) for name in names]
    if any(part.requires_grad and not value.requires_grad for part in parts):
        return False
    return all(is_captured(part) if is_wrapper(part) else _is_plain(part) for part in parts)


def _is_plain(part: torch.Tensor) -> bool:
    return type(part) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and not (
        part.layout != torch.strided or part.is_quantized or part.is_nested or torch._is_zerotensor(part)
    )


def _writes_globals(fn: types.FunctionType) -> bool:
    return not in_torch(fn.__code__) and _stores_globals(fn.__code__)


@functools.lru_cache(maxsize=1024)
def _stores_globals(code: types.CodeType) -> bool:
    """Whether a function writes global variables; compiled code would not do that at each call."""
    return any(step.opname == "STORE_GLOBAL" for step in dis.get_instructions(code))


def _guard_class(tx: Tracer, cls: type) -> None:
    """Guard the methods that the compiler traces, and the globals that they read."""
    note_class(cls)
    for name in _METHODS:
        guarded_lookup(tx, cls, name)
    for fn in methods_of(cls):
        if in_torch(fn.__code__):
            tx.guard(FuncPartSource(ConstSource.of(fn, fn.__qualname__), "__code__"), "ID", fn.__code__)
        else:
            guard_parts(tx, fn)


class _SameParts:
    """A guard predicate: the tensor has these inner tensors and this context. Compares equal if both are the same."""

    def __init__(self, names: tuple[str, ...], context: Any) -> None:
        self.names, self.context = names, context

    def __call__(self, value: Any) -> bool:
        names, context = parts_of(value)
        return names == self.names and same_context(context, self.context)

    def __hash__(self) -> int:
        return hash(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameParts) and self.names == other.names and same_context(self.context, other.context)


def _guard(
    tx: Tracer, value: torch.Tensor, source: Source, fake: torch.Tensor, read: Callable[[], Any]
) -> None:
    """Guard the class, the context and the metadata of the inner tensors, as given by `fake`. `read` returns the Var of
    `value`."""
    _guard_class(tx, type(value))
    names, context = parts_of(value)
    tx.guard(
        source, "PREDICATE", (_SameParts(names, context), (), f"__tensor_flatten__ returns {names}, {context!r:.200}")
    )
    for name in names:
        part, there = getattr(value, name), AttrSource(source, name)
        known, elsewhere = tx.traced(part), tx.inner_tensors.get(id(part))
        if known is not None and known.source is not None:
            tx.guard(there, "SAME", known.source)
        elif elsewhere is not None:
            tx.guard(there, "SAME", elsewhere[0])
        else:
            guard_metadata(tx, part, there, getattr(fake, name))
            reads = functools.partial(_read, tx, read, name)
            tx.inner_tensors[id(part)] = there, reads
            if is_wrapper(part):
                _guard(tx, part, there, getattr(fake, name), reads)


def _read(tx: Tracer, read: Callable[[], Any], name: str) -> Var:
    return read().inner_tensor(tx, name)


CONSTRUCTORS.append((makes_instances, make_instance))
