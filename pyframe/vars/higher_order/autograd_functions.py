"""Models `torch.autograd.Function.apply`.

Where no gradient is recorded, `forward` is traced inline. Where one is, the call is one graph node that calls `apply`
itself. `forward` and `backward` are traced nevertheless, to collect guards on what they read; the nodes that this added
are then removed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductor.overlap import memory_of
from inductor.torch_compat import AUTOGRAD_APPLY

from ...core.in_order import in_order
from ..containers.sequence import SequenceVar, TupleVar
from ..objects.instances import InstanceVar
from ..protocol.base import Raised, Var
from ..protocol.class_reads import lookup
from ..protocol.const import make
from ..registry import register
from ..torch_objects.contexts import GradModeVar
from ..torch_objects.overrides import leaves_of, owned, without_subclass
from ..torch_objects.tensor import TensorVar
from ..torch_objects.tensor_subclass import TensorSubclassVar
from ..torch_objects.wrapper_subclass import WrapperTensorVar
from ..tracer import Tracer

Function = torch.autograd.Function


class Context:
    """The object that a traced `forward` and `backward` get as `ctx`."""

    saved_tensors: tuple[Any, ...] = ()
    dirty: tuple[Any, ...] = ()
    materializes: bool = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        self.materializes = value


@functools.cache
def apply_of(cls: type[Function], apart: bool = False, enabled: bool = False) -> Callable[..., Any]:
    """The function that the graph node calls. `apart`: a compiled graph cannot contain the call. `enabled`: the class
    of an argument overrides torch functions inside `forward`."""

    def apply(*args: Any, **kwargs: Any) -> Any:
        if not enabled:
            return cls.apply(*args, **kwargs)
        with torch._C._EnableTorchFunction():
            return cls.apply(*args, **kwargs)

    apply.__name__ = f"apply_{cls.__name__}"
    apply.__qualname__ = f"{cls.__module__}.{cls.__qualname__}.apply"
    apply.__module__ = __name__
    return in_order(apply) if apart else apply


@register(AUTOGRAD_APPLY, overridable=False)
def _apply(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    cls, *inputs = [args[0].constant(), *args[1:]]
    given = leaves_of((*inputs, *kwargs.values()))
    if any(isinstance(v, TensorSubclassVar) and not isinstance(v, WrapperTensorVar) for v in given):
        tx.graph_break("unsupported-object", f"{cls.__qualname__}.apply of instances of tensor subclasses")
    wraps = any(isinstance(v, WrapperTensorVar) for v in given)
    recorded = torch.is_grad_enabled() and any(map(_requires_grad, (*inputs, *kwargs.values())))
    if torch._C._are_functorch_transforms_active() or kwargs:
        tx.graph_break("unsupported-object", f"{cls.__qualname__}.apply with keywords or under torch.func")
    if not recorded:
        ctx, result = _forward(tx, cls, inputs)
        dirty = ctx.getattr_(tx, "dirty").unpack(tx)
        return _not_the_inputs(tx, result, [each for each in inputs if not any(each is other for other in dirty)])
    effects, nodes = len(tx.effects), set(tx.graph.graph.nodes)
    tx.graph.values.only_constants = True  # the node below does not take numbers that are graph inputs
    try:
        ctx, result = _forward(tx, cls, inputs)
        if ctx.getattr_(tx, "dirty").truth(tx):
            tx.graph_break("unsupported-object", f"{cls.__qualname__} marks an input as changed in place")
        _backward(tx, cls, ctx, result)
    finally:
        tx.graph.values.only_constants = False
    if len(tx.effects) != effects:
        tx.graph_break("unsupported-object", f"{cls.__qualname__} changes objects that exist outside of it")
    tx.graph.forget(nodes)
    # the gradient of such a result is not that of a view
    aliases = bool(_storages(result) & _storages(TupleVar(inputs)))
    # the backward may check which results have a gradient: a compiled one passes zeros for those that have none
    asks = not ctx.getattr_(tx, "materializes").truth(tx) and isinstance(result, SequenceVar)
    if aliases and tx.graph.stack.is_nested:
        tx.graph_break("unsupported-object", f"{cls.__qualname__} returns an input, or a view of one")
    if asks and tx.graph.stack.is_nested:
        tx.graph_break(
            "unsupported-object", f"{cls.__qualname__} turns set_materialize_grads off and has several results"
        )
    return owned(tx.graph.call(apply_of(cls, aliases or asks, wraps), [without_subclass(each) for each in inputs], {}))


def _requires_grad(value: Var) -> bool:
    tensor = without_subclass(value)
    return isinstance(tensor, TensorVar) and tensor.fake.requires_grad


def _storages(value: Var) -> set[int]:
    value = without_subclass(value)
    if isinstance(value, TensorVar):
        return {memory_of(value.fake)}
    return set().union(*map(_storages, value.items)) if isinstance(value, SequenceVar) else set()


def _backward(tx: Tracer, cls: Any, ctx: Var, result: Var) -> None:
    """Trace the backward, with the result's tensors as gradients."""
    name = "backward"
    if lookup(cls, name) is Function.__dict__.get(name):
        name = "vjp"
    backward, first = _part(cls, name)
    outputs = list(result.items) if isinstance(result, SequenceVar) else [result]
    if hasattr(backward, "__code__"):
        _without_grad(tx, backward, [*first, ctx, *outputs])


def _forward(tx: Tracer, cls: Any, inputs: list[Var]) -> tuple[Var, Var]:
    ctx = InstanceVar.fresh(Context)
    wanted = list(map(_requires_grad, inputs))
    ctx.setattr_(tx, "needs_input_grad", make(tuple(wanted)))
    forward, first = _part(cls, "forward")
    if lookup(cls, "setup_context") is lookup(Function, "setup_context"):
        result = _without_grad(tx, forward, [*first, ctx, *inputs])
    else:
        result = _without_grad(tx, forward, [*first, *inputs])
        setup, first = _part(cls, "setup_context")
        _without_grad(tx, setup, [*first, ctx, TupleVar(inputs), result])
    return ctx, result


def _part(cls: Any, name: str) -> tuple[Any, list[Var]]:
    """The function of `cls.name`, and its bound first argument: the class, for a classmethod."""
    raw = lookup(cls, name)
    return getattr(raw, "__func__", raw), [make(cls)] if isinstance(raw, classmethod) else []


def _without_grad(tx: Tracer, fn: Any, args: Sequence[Var]) -> Var:
    mode = GradModeVar(False, torch.no_grad)
    mode.enter(tx)
    try:
        result = tx.inline(getattr(fn, "__wrapped__", fn), args, {})
    except Raised:
        mode.exit(tx)
        raise
    mode.exit(tx)
    return result


def _not_the_inputs(tx: Tracer, result: Var, inputs: Sequence[Var]) -> Var:
    """`result`, with each input that `forward` returned unchanged replaced by a view of it."""
    if any(result is given for given in inputs):
        return tx.graph.call_method("view_as", [result, result], {}) if isinstance(result, TensorVar) else result
    if isinstance(result, SequenceVar):
        return TupleVar([_not_the_inputs(tx, item, inputs) for item in result.items])
    return result
