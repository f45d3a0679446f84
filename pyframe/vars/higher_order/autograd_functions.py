"""Models `torch.autograd.Function.apply`.

Where no gradient is recorded, `forward` is traced inline. Where one is, and in functions that torch.func transforms,
the call is one graph node that calls `apply` itself. `forward` and `backward` are traced nevertheless, to collect
guards on what they read; the nodes that this added are then removed.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils.checkpoint

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
from ..torch_objects.torch_functions import is_in_graph, is_torch_function
from ..torch_objects.wrapper_subclass import WrapperTensorVar
from ..tracer import Tracer
from .transforms import reentrant_checkpoint

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
def apply_of(
    cls: type[Function], apart: bool = False, enabled: bool = False, objects: tuple[tuple[int, Any], ...] = ()
) -> Callable[..., Any]:
    """The function that the graph node calls. `apart`: a compiled graph cannot contain the call. `enabled`: the class
    of an argument overrides torch functions inside `forward`. `objects`: arguments that a graph cannot pass, as
    positions and weak references."""

    def apply(*args: Any) -> Any:
        given = list(args)
        for position, reference in objects:
            given[position] = reference()
        with _real_tensors_allowed() if apart else contextlib.nullcontext():
            if not enabled:
                return cls.apply(*given)
            with torch._C._EnableTorchFunction():
                return cls.apply(*given)

    apply.__name__ = f"apply_{cls.__name__}"
    apply.__qualname__ = f"{cls.__module__}.{cls.__qualname__}.apply"
    apply.__module__ = __name__
    return in_order(apply) if apart else apply


@contextlib.contextmanager
def _real_tensors_allowed() -> Iterator[None]:
    """While tracing, what `forward` reads from outside is a real tensor; operators take its metadata."""
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if mode is None:
        yield
        return
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


def _index_function() -> type[Function] | None:
    """The autograd.Function that indexes tensors in a score_mod or mask_mod of flex_attention; None if its module is
    not loaded. Its gradient is that of the operator `index`."""
    module = sys.modules.get("torch._dynamo._trace_wrapped_higher_order_op")  # the import takes seconds
    return getattr(module, "ModIndex", None)


@register(AUTOGRAD_APPLY, overridable=False)
def _apply(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    cls, *inputs = [args[0].constant(), *args[1:]]
    if cls is _index_function() and len(inputs) == 2 and not kwargs:
        return tx.graph.call(torch.ops.aten.index.Tensor, inputs, {})
    if cls is torch.utils.checkpoint.CheckpointFunction and len(inputs) > 1 and not kwargs:
        return reentrant_checkpoint(tx, inputs[0], inputs[2:])
    tensors = leaves_of((*inputs, *kwargs.values()))
    if any(isinstance(v, TensorSubclassVar) and not isinstance(v, WrapperTensorVar) for v in tensors):
        tx.graph_break("unsupported-object", f"{cls.__qualname__}.apply of instances of tensor subclasses")
    wraps = any(isinstance(v, WrapperTensorVar) for v in tensors)
    if is_in_graph(cls):
        return tx.graph.call(apply_of(cls), inputs, kwargs)
    recorded = torch.is_grad_enabled() and any(map(_requires_grad, (*inputs, *kwargs.values())))
    if torch._C._are_functorch_transforms_active() or kwargs:
        tx.graph_break("unsupported-object", f"{cls.__qualname__}.apply with keywords or under torch.func")
    if tx.graph.stack.in_transform:  # it takes `vmap`, `jvp` or `backward` of the class
        own = [name for name in ("vmap", "jvp") if lookup(cls, name) is not lookup(Function, name)]
        if _reads_values(cls, own, _NEVER_REPLACED):
            what = f"{' or '.join(own)} of {cls.__qualname__} reads variables outside of it"
            tx.graph_break("unsupported-object", what)
    elif not recorded:
        ctx, result = _forward(tx, cls, inputs)
        dirty = ctx.getattr_(tx, "dirty").unpack(tx)
        return _not_the_inputs(tx, result, [each for each in inputs if not any(each is other for other in dirty)])
    return _recorded(tx, cls, inputs, wraps)


def _recorded(tx: Tracer, cls: type[Function], inputs: list[Var], wraps: bool) -> Var:
    """The call as one node that autograd records. `wraps`: an argument is an instance of a tensor subclass."""
    effects, nodes = len(tx.effects), set(tx.graph.graph.nodes)
    if effects and _may_see_changes(tx, cls, inputs):  # the node calls `apply` before the changes are made
        tx.graph_break("unsupported-object", f"{cls.__qualname__} may read objects that were changed before it")
    tx.graph.values.only_constants = True  # the node below does not take numbers that are graph inputs
    try:
        ctx, result = _forward(tx, cls, inputs)
        _backward(tx, cls, ctx, result)
    finally:
        tx.graph.values.only_constants = False
    if len(tx.effects) != effects:
        tx.graph_break("unsupported-object", f"{cls.__qualname__} changes objects that exist outside of it")
    outside = _reads_outside(tx, cls, inputs, nodes)
    tx.graph.forget(nodes)
    apart = {
        # the gradient of such a result is not that of a view
        "returns an input, or a view of one": bool(_storages(result) & _storages(TupleVar(inputs))),
        # the backward may check which results have a gradient: a compiled one passes zeros for those that have none
        "turns set_materialize_grads off and has several results": isinstance(result, SequenceVar)
        and not ctx.getattr_(tx, "materializes").truth(tx),
        "marks an input as changed in place": ctx.getattr_(tx, "dirty").truth(tx),
        "reads tensors that are not its arguments": outside,
    }
    reason = next((what for what, found in apart.items() if found), None)
    if reason is not None and tx.graph.stack.is_nested:
        tx.graph_break("unsupported-object", f"{cls.__qualname__} {reason}")
    given = [without_subclass(each) for each in inputs]
    objects = tuple((at, _reference(tx, each)) for at, each in enumerate(given) if isinstance(each, InstanceVar))
    apply = apply_of(cls, reason is not None, wraps, objects)
    return owned(tx.graph.call(apply, [None if isinstance(each, InstanceVar) else each for each in given], {}))


def _reference(tx: Tracer, argument: InstanceVar) -> weakref.ref[Any]:
    """A weak reference to an argument that existed before the frame, and a guard that it is the same object."""
    value = argument.value
    if argument.source is None or not hasattr(type(value), "__weakref__"):
        tx.graph_break("unsupported-object", f"{argument.describe()} as an argument of an autograd.Function")
    tx.guard(argument.source, "ID", value)
    return weakref.ref(value)


_PARTS = ("forward", "setup_context", "backward", "vjp", "jvp", "vmap")
_WITHOUT_STATE = (
    types.ModuleType, type, types.BuiltinFunctionType, int, float, complex, str, bytes, type(None), torch.Tensor,
    torch.dtype, torch.device, enum.Enum, torch._ops.OpOverload, torch._ops.OpOverloadPacket,
)  # fmt: skip
# Values of variables that `vmap` and `jvp` may read: these are not traced, so nothing guards what they read.
_NEVER_REPLACED = (
    types.ModuleType, type, types.BuiltinFunctionType, torch.dtype, torch._ops.OpOverload, torch._ops.OpOverloadPacket,
)  # fmt: skip


def _may_see_changes(tx: Tracer, cls: type[Function], inputs: Sequence[Var]) -> bool:
    """Whether the functions of `cls` may read something that the program changed, which happens after the graph."""
    rebinds = any(each.kind in ("GLOBAL", "CELL") for each in tx.effects)
    takes_objects = any(isinstance(v, InstanceVar) for v in inputs)
    return rebinds or bool(tx.class_writes) or takes_objects or _reads_values(cls, _PARTS, _WITHOUT_STATE)


def _reads_values(cls: type[Function], parts: Sequence[str], allowed: tuple[type, ...]) -> bool:
    """Whether the functions of `cls` in `parts`, and those they call by name, name a value of another class than
    functions and those in `allowed`."""
    todo = [_part(cls, name)[0] for name in parts]
    seen = set()
    while todo:
        fn = inspect.unwrap(todo.pop())
        if not isinstance(fn, types.FunctionType) or fn in seen or is_torch_function(fn):
            continue
        seen.add(fn)
        for value in _named_values(fn):
            if isinstance(value, types.FunctionType):
                todo.append(value)
            elif not isinstance(value, allowed):
                return True
    return False


def _named_values(fn: types.FunctionType) -> Iterator[Any]:
    """The values of the global variables and closure cells that the code of a function names."""
    codes = [fn.__code__]
    for code in codes:
        yield from (fn.__globals__[name] for name in code.co_names if name in fn.__globals__)
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    for cell in fn.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents


def _reads_outside(tx: Tracer, cls: type[Function], inputs: Sequence[Var], before: set[torch.fx.Node]) -> bool:
    """Whether the operations that are not in `before` take tensors that are neither in `inputs` nor their own; breaks
    the graph if they write to such a tensor."""
    traced = [node for node in tx.graph.graph.nodes if node not in before and node.op != "placeholder"]
    outside = _tensors_outside(inputs, traced)
    written = (given for node in traced if tx.graph.writes(node) for given in node.all_input_nodes)
    if any(_memory(node) & outside for node in written):
        tx.graph_break("unsupported-object", f"{cls.__qualname__} writes to a tensor that is not its argument")
    return bool(outside)


def _tensors_outside(inputs: Sequence[Var], nodes: Sequence[torch.fx.Node]) -> set[int]:
    """The memory of the tensors that `nodes` take and that are neither in `inputs` nor computed by `nodes`."""
    taken = {given for node in nodes for given in node.all_input_nodes}.difference(nodes)
    tensors = [leaf for leaf in map(without_subclass, leaves_of(inputs)) if isinstance(leaf, TensorVar)]
    return set().union(*map(_memory, taken)).difference(memory_of(each.fake) for each in tensors)


def _memory(node: torch.fx.Node) -> set[int]:
    value = node.meta.get("val")
    return {memory_of(value)} if isinstance(value, torch.Tensor) else set()


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
