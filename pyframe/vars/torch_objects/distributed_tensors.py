"""DTensors of `torch.distributed.tensor`: their placements, and the functions that convert them.

A placement (`Shard(0)`, `Replicate()`, `Partial()`) never changes, so it is a constant of a capture. `from_local`,
`to_local`, `redistribute` and `full_tensor` are one node each: a function with the mesh and the placements bound to it,
which takes the tensor. The compiler traces through it, so the collectives are part of the compiled graph. The module is
imported by programs that use it only (that takes seconds); `register_models` adds the models after that.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.source import ConstSource, Source
from ..containers.iterator import NotRebuilt
from ..objects.instances import InstanceVar
from ..objects.instantiation import CONSTRUCTORS
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, note_class
from ..protocol.const import ConstVar, MethodVar, constants, fold, make, maker
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar
from .wrapper_subclass import WITH_OUTER_STATE, WrapperTensorVar

PLACEMENTS: tuple[type, ...] = ()
if torch.distributed.is_available():
    from torch._C import _distributed

    PLACEMENTS = (_distributed.Placement,)
_MODULE = "torch.distributed.tensor"
_QUERIES = frozenset({"is_shard", "is_replicate", "is_partial", "__eq__", "__ne__", "__hash__", "__repr__", "__str__"})
_registered = False


class PlacementVar(ConstVar):
    """A placement. Its attributes and queries are computed while tracing; other methods are traced."""

    __slots__ = ()

    def getattr_(self, tx: Tracer, name: str) -> Var:
        found = getattr(self.value, name, MISSING)
        if callable(found) and not isinstance(found, type):
            return MethodVar(self, name)
        return super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name not in _QUERIES:
            return super().call_method(tx, name, args, kwargs)
        try:
            values, named = constants(args), dict(zip(kwargs, constants(kwargs.values())))
        except NotConstant:
            return self.unsupported(tx, f"method {name!r}")
        return fold(tx, getattr(self.value, name), *values, **named)


def wrap_placement(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a placement that existed before the frame."""
    if not _is_constant_class(type(value)):
        tx.guard(source, "TYPE", type(value))
        return InstanceVar(value, source)
    tx.guard(source, "EQUALS", value)
    return PlacementVar(value, source)


def _is_constant_class(cls: type) -> bool:
    """Whether a class is one of torch's own placements whose instances never change."""
    types_of = sys.modules.get(f"{_MODULE}.placement_types")
    return types_of is not None and any(
        cls is getattr(types_of, name, None) for name in ("Shard", "Replicate", "Partial", "_StridedShard")
    )


def _make_placement(tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`cls(*args, **kwargs)` for a class of placements."""
    note_class(cls)
    try:
        values, named = constants(args), dict(zip(kwargs, constants(kwargs.values())))
    except NotConstant:
        return tx.graph_break("unsupported-object", f"creating a {cls.__qualname__} of values known only at run time")
    return fold(tx, cls, *values, **named)


CONSTRUCTORS.append((_is_constant_class, _make_placement))


# ---- models ------------------------------------------------------------------------------------------------


def register_models() -> None:
    """Register what this module models, if the program has imported `torch.distributed.tensor`."""
    global _registered
    module = sys.modules.get(_MODULE)
    cls = getattr(module, "DTensor", None)
    if _registered or cls is None or not hasattr(module, "Partial"):  # the import may be under way
        return
    _registered = True
    maker(module.Shard, module.Replicate, module.Partial)(PlacementVar)  # type: ignore[union-attr]
    maker(sys.modules[f"{_MODULE}.placement_types"]._StridedShard)(PlacementVar)
    for name in ("from_local", "to_local", "redistribute", "full_tensor"):
        function = inspect.getattr_static(cls, name)
        function = getattr(function, "__func__", function)
        register(function.__code__)(_Conversion(function, name == "from_local", name == "to_local"))
    register(cls.placements.fget.__code__)(_placements)
    register(cls.device_mesh.fget.__code__)(_device_mesh)


# ---- masks -------------------------------------------------------------------------------------------------
#
# A lookup in an embedding that is sharded by rows, and `gather`, return a DTensor with the placement `_MaskPartial`. It
# keeps the mask of the rows that this rank has in a buffer, which all such results share, until a redistribution sums
# the parts. So both operators belong into one graph.


def _buffers_of(x: torch.Tensor) -> list[Any]:
    """The buffers of masks among the placements of a DTensor."""
    types_of: Any = sys.modules.get(f"{_MODULE}.placement_types")
    masked = getattr(types_of, "_MaskPartial", ())
    return [each.mask_buffer for each in getattr(x, "placements", ()) if isinstance(each, masked)]


WITH_OUTER_STATE.append(lambda x: bool(_buffers_of(x)))


def note_masks(tx: Tracer, tensor: TensorVar) -> None:
    """Note the masks of a result of the graph."""
    if isinstance(tensor.owner, WrapperTensorVar):
        tx.masks += [(buffer, tx.steps) for buffer in _buffers_of(tensor.fake)]


def release_masks(tx: Tracer) -> list[int]:
    """Empty the buffers of the masks that fake tensors have made. Returns the steps that made those not summed yet."""
    held = [step for buffer, step in tx.masks if buffer.refcount]
    for buffer, _ in tx.masks:
        buffer.data, buffer.refcount = None, 0
    tx.masks.clear()
    return held


def check_masks(tx: Tracer) -> None:
    """Restart with a break at an operator whose result is not summed in the same graph."""
    if held := release_masks(tx):
        raise NotRebuilt("a DTensor with a mask that the graph does not apply", held[0], "unsupported-object")


# ---- conversions -------------------------------------------------------------------------------------------


class _Conversion:
    """The model of a function that makes a DTensor of a tensor, or the reverse: one node with its other arguments bound
    to the function that it calls. `takes_plain`: it takes a plain tensor and makes a DTensor of it. `returns_inner`:
    without gradients it returns the inner tensor itself."""

    def __init__(self, function: types.FunctionType, takes_plain: bool, returns_inner: bool) -> None:
        self.function, self.signature, self.returns_inner = function, inspect.signature(function), returns_inner
        self.tensor = next(iter(self.signature.parameters))  # the name of the parameter that takes the tensor
        self.takes_plain = takes_plain

    def __call__(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        called, *given = args
        try:
            bound = self.signature.bind(*given, **kwargs).arguments
        except TypeError:
            return tx.inline(called, given, kwargs)
        tensor = bound.pop(self.tensor)
        is_wrapper = isinstance(tensor, WrapperTensorVar)
        base = tensor.base if is_wrapper else tensor
        if not isinstance(base, TensorVar) or is_wrapper is self.takes_plain:
            return tx.inline(called, given, kwargs)
        if self.returns_inner and not torch.is_grad_enabled():
            return tx.inline(called, given, kwargs)
        values = {name: self._value(tx, name, var) for name, var in bound.items()}
        needs_mesh = self.takes_plain and values.get("device_mesh") is None
        if needs_mesh or values.get("run_check"):  # the mesh of a context; communication that changes the tensor
            return tx.graph_break("unsupported-object", f"{self.function.__name__} without a mesh or with run_check")
        result = tx.graph.call(_bound(self.function, self.tensor, values), [base], {})
        return result.owner if isinstance(result, TensorVar) and result.owner is not None else result

    def _value(self, tx: Tracer, name: str, var: Var) -> Any:
        """The value of an argument, guarded to be the same in later calls."""
        if isinstance(var, InstanceVar) and var.value is not MISSING and isinstance(var.value, _mesh_class()):
            if var.source is not None and not isinstance(var.source, ConstSource):
                tx.guard(var.source, "ID", var.value)
            return var.value
        try:
            return var.plain()
        except NotConstant:
            return tx.graph_break("unsupported-object", f"argument {name!r} of {self.function.__name__}")


def _mesh_class() -> type:
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh


def _bound(function: types.FunctionType, tensor: str, values: Mapping[str, Any]) -> Callable[[Any], Any]:
    """The function that a node calls with the tensor."""

    def convert(x: Any) -> Any:
        return function(**{tensor: x}, **values)

    convert.__name__ = function.__name__
    convert.__qualname__ = f"DTensor.{function.__name__}"
    convert.__module__ = __name__
    return convert


def _placements(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`DTensor.placements`."""
    called, tensor = args
    if not isinstance(tensor, WrapperTensorVar) or tensor.value is not MISSING:
        return tx.inline(called, [tensor], kwargs)
    return make(tuple(tensor.base.fake.placements))  # type: ignore[attr-defined]


def _device_mesh(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`DTensor.device_mesh`."""
    called, tensor = args
    if not isinstance(tensor, WrapperTensorVar) or tensor.value is not MISSING:
        return tx.inline(called, [tensor], kwargs)
    mesh = tensor.base.fake.device_mesh  # type: ignore[attr-defined]
    return tx.wrap(mesh, ConstSource.of(mesh, "device_mesh"))


