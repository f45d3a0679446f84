"""Models `tensor.register_hook(fn)` and `retain_grad()` as graph nodes that do the same to the real tensor.

The hook is traced into a graph of its own, which the backward pass runs. Of a hook that changes objects, or reads what
may change before the backward pass, the node registers the program's own function; where that is not known before the
graph runs, the graph breaks.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.hooks import RemovableHandle

from ...core.in_order import for_autograd, in_order
from ...errors import Restart
from ..codegen import Codegen
from ..containers.mapping import DictVar
from ..containers.sequence import ListVar
from ..containers.sets import SetVar
from ..objects.functions import CellVar
from ..objects.instances import InstanceVar
from ..protocol.base import Raised, Var
from ..protocol.const import ConstVar, MethodVar
from ..registry import Args, Kwargs, register
from ..torch_objects.tensor import TensorVar, tensor_and_args
from ..traced_graph import TracedGraph
from ..tracer import Tracer
from .called_hooks import Ingredients, NotKnown
from .control_flow import state_of, unchanged
from .late_reads import LateReads


class _Traced(NamedTuple):
    """The graph of a hook; `lifted`: the values that it takes after the gradient; `reads_changeable`: whether it reads
    what code outside of the frame may change before the hook runs."""

    gm: Any
    lifted: list[Var]
    reads_changeable: bool


class RegisteredHook:
    """A hook that `node` registers. The backward pass calls it later: then it reads what cells, containers and
    attributes hold by that time. `made`: its trace, or what the program's own function is made of."""

    def __init__(self, tx: Tracer, tensor: TensorVar, hook: Var, node: Any, made: _Traced | Ingredients) -> None:
        self.tx, self.tensor, self.hook, self.node, self.made = tx, tensor, hook, node, made
        self.text = str(made.gm.graph) if isinstance(made, _Traced) else ""
        self.changes = tx.effects.changes
        self.kept: list[Any] = []
        self.state = state_of(tx, [hook], self.kept) if isinstance(made, _Traced) else {}

    def is_right(self) -> bool:
        """Whether the node will register what the program has made of the hook by the end of the frame, if need be
        after tracing it again."""
        if self.node._erased:
            return True
        if isinstance(self.made, Ingredients):
            # a pass within the graph would see objects as they were before the frame
            return self.made.unchanged() and not differentiates(self.node)
        current = unchanged(self.state, state_of(self.tx, [self.hook]))
        return current and self.tx.effects.changes == self.changes or self._trace_again()

    def escapes(self, rebuilt: Container[int]) -> bool:
        """Whether an object that the hook reads is there after the frame, where the program may change it before the
        backward pass: a new one that is needed, or, if the hook was traced, one that existed before. `rebuilt`: the ids
        of the Vars that the new bytecode rebuilds."""
        if self.node._erased:
            return False
        if isinstance(self.made, Ingredients):
            return any(id(cell) in rebuilt for cell, _ in self.made.new_cells)
        kept: list[Any] = []
        state_of(self.tx, [self.hook], kept)
        if any(isinstance(var, _CHANGEABLE) and var.source is None and id(var) in rebuilt for var in kept):
            return True
        outside = any(isinstance(var, _CONTAINERS) and var.source is not None for var in kept)
        return outside or self.made.reads_changeable

    def _trace_again(self) -> bool:
        """Trace the hook with what it reads now, at the end of the frame. False if that fails, if a backward pass of
        the graph has called it when it read something else, or if it takes values that are computed after it was
        registered."""
        tx, before = self.tx, self.made
        traced = tx.speculate(lambda: _trace(tx, self.tensor, self.hook))
        if traced is None or not isinstance(before, _Traced):
            return False
        self.made = traced._replace(reads_changeable=traced.reads_changeable or before.reads_changeable)
        args = [tx.graph.values.for_node(var) for var in traced.lifted]
        if (str(traced.gm.graph), args) == (self.text, [*self.node.args[1:]]):
            return True
        if differentiates(self.node) or not all(arg < self.node for arg in args):
            return False
        self.node.target, self.node.args = _hooking(_runs(traced.gm)), (self.node.args[0], *args)
        return True


_CONTAINERS = (ListVar, DictVar, SetVar)
_CHANGEABLE = (CellVar, *_CONTAINERS, InstanceVar)


def check_escapes(graph: TracedGraph, rebuilt: Container[int]) -> None:
    """Do not trace hooks that may read what the program changes after the frame; `rebuilt` as above."""
    for hook in graph.registered_hooks:
        if hook.escapes(rebuilt):
            _give_up(graph, hook)


def follow_changes(graph: TracedGraph) -> None:
    """Trace the hooks again that read what the program has changed since they were registered."""
    for hook in graph.registered_hooks:
        if not hook.is_right():
            _give_up(graph, hook)


def _give_up(graph: TracedGraph, hook: RegisteredHook) -> NoReturn:
    """Begin again, and register hooks in another way than this one was."""
    if isinstance(hook.made, Ingredients):
        graph.history.calls_hooks = False
    else:
        graph.history.traces_hooks = False
    raise Restart()


class TensorHookVar(Var):
    """The handle of a tensor hook, which the node `registers` registers."""

    __slots__ = ("registers", "tensor")

    def __init__(self, tensor: TensorVar, node: Any) -> None:
        super().__init__()
        self.tensor, self.registers = tensor, node

    def python_type(self) -> type:
        return RemovableHandle

    def describe(self) -> str:
        return f"the handle of a hook of {self.tensor.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name) if name == "remove" else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name != "remove" or self.registers.graph is not tx.graph.graph:
            return super().call_method(tx, name, args, kwargs)
        if self in self.tensor.hooks:
            if differentiates(self.registers):
                return self.unsupported(tx, "remove() after a backward pass")
            self.tensor.hooks.remove(self)
            before = self.registers.args[0]
            self.registers.replace_all_uses_with(before)
            if self.tensor.node is self.registers:
                self.tensor.node = before
            tx.graph.graph.erase_node(self.registers)
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        hooks = self.tensor.hooks
        cg.load_const(_handle)
        place = len(hooks) - hooks.index(self) if self in hooks else 0
        cg.call_top(lambda: cg.load(self.tensor), lambda: cg.load_const(place))


def _handle(tensor: torch.Tensor, place: int) -> RemovableHandle:
    """The handle of the hook of `tensor` at `place`, counted from the last, which is 1; 0 stands for a removed hook."""
    hooks: Any = tensor._backward_hooks if place else collections.OrderedDict()
    handle = RemovableHandle(hooks)
    if place:
        handle.id = list(hooks)[-place]
    return handle


def _hooking(make: Callable[[Sequence[Any]], Any], fakes: bool = True) -> Callable[..., torch.Tensor]:
    """The function that the node calls; `make(values)` makes the hook of the values that the graph passes. `fakes`:
    whether fake tensors get the hook, too, so that backward passes that are traced call it."""

    @for_autograd
    @in_order
    def register_hook(tensor: torch.Tensor, *values: Any) -> torch.Tensor:
        if fakes or not isinstance(tensor, FakeTensor):
            tensor.register_hook(make(values))
        return tensor

    register_hook.__qualname__, register_hook.__module__ = "register_hook", __name__
    register_hook.returns_argument = True  # type: ignore[attr-defined]
    return register_hook


def computing_node(node: Any) -> Any:
    """The node that computes what `node` returns, which may be nodes before it that register hooks."""
    while getattr(node.target, "returns_argument", False):
        node = node.args[0]
    return node


def _runs(gm: Any) -> Callable[[Sequence[Any]], Any]:
    """The hook that computes the new gradient by `gm(gradient, *values)`."""
    return lambda values: lambda gradient: gm(gradient, *values)[0]


@for_autograd
@in_order
def retain_grad(tensor: torch.Tensor) -> torch.Tensor:
    tensor.retain_grad()
    return tensor


@register(torch.Tensor, method="register_hook")
def _register_hook(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    tensor, args = tensor_and_args(args)
    hook = args[0] if args else kwargs["hook"]
    if not tensor.fake.requires_grad or tx.graph.in_mode:
        return tensor.unsupported(tx, "register_hook() in a nested graph, under a mode, or without a gradient,")
    if tx.graph.removes_hooks:
        return tensor.unsupported(tx, "register_hook() after a hook was removed")
    called = _called(tx, hook)
    if tx.graph.history.traces_hooks:
        traced = _trace(tx, tensor, hook) if called is None else tx.speculate(lambda: _trace(tx, tensor, hook))
        if traced is None:
            tx.graph.history.traces_hooks = False
            raise Restart()
        made: _Traced | Ingredients = traced
        node = _early(tx, tensor, _hooking(_runs(traced.gm)), traced.lifted)
    elif called is not None:
        make, made = called
        node = _early(tx, tensor, _hooking(make, fakes=False), made.tensors)
        made.guard()
    else:
        return tensor.unsupported(tx, "register_hook() of a function that reads what changes later")
    tx.graph.registered_hooks.append(RegisteredHook(tx, tensor, hook, node, made))
    handle = TensorHookVar(tensor, node)
    tensor.hooks.append(handle)
    return handle


def _called(tx: Tracer, hook: Var) -> tuple[Callable[[Sequence[Any]], Any], Ingredients] | None:
    """What makes the hook as the program's own function, and of which tensors; None if that is not known."""
    ingredients = Ingredients(tx)
    try:
        return (ingredients.make(hook), ingredients) if tx.graph.history.calls_hooks else None
    except NotKnown:
        return None


def _trace(tx: Tracer, tensor: TensorVar, hook: Var) -> _Traced:
    nested = tx.graph.stack.enter()
    with tx.graph.fake_mode:
        gradient = tx.graph.stack.tensor_argument(torch.empty_like(tensor.fake).detach())
    effects, changes, before = len(tx.effects), tx.effects.changes, state_of(tx, [hook])
    with torch.no_grad():  # the backward pass runs without recording gradients
        outer, reads = tx.outside_reads, LateReads()
        tx.outside_reads = reads
        try:
            result = tx.call(hook, [gradient], {})
        except Raised as raised:
            return tensor.unsupported(tx, f"a hook that raises {raised.exc.describe()}")
        finally:
            tx.outside_reads = outer
        if len(tx.effects) != effects or not unchanged(before, state_of(tx, [hook])) or torch.is_grad_enabled():
            return tensor.unsupported(tx, "a hook that changes objects")
    tx.effects.changes = changes  # what changed are objects that the hook itself created
    if gradient.fake._version or tx.graph.stack.changes_lifted():
        return tensor.unsupported(tx, "a hook that changes tensors in place")
    outputs = [result] if isinstance(result, TensorVar) else []
    if not outputs and not (result.is_constant() and result.constant() is None):
        return tensor.unsupported(tx, f"a hook that returns {result.describe()}")
    return _Traced(*tx.graph.end_nested(nested, outputs or [gradient]), reads.changeable)


@register(torch.Tensor, method="retain_grad")
def _retain_grad(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    tensor, args = tensor_and_args(args)
    if not tensor.fake.requires_grad or tx.graph.stack.is_nested:
        return tensor.unsupported(tx, "retain_grad() in a nested graph, or without a gradient,")
    if not tensor.fake.is_leaf:
        _early(tx, tensor, retain_grad, [])
    return ConstVar(None)


def _early(tx: Tracer, tensor: TensorVar, target: Callable[..., Any], more: Sequence[Var]) -> Any:
    """Add a node `target(tensor, *more)` before other uses of the tensor. A backend that compiles the graph in parts
    does not see the gradients between operations of one part."""
    producer = tensor.node
    used = bool(producer.users) and tensor.source is None
    tx.graph.call(target, [tensor, *more], {})
    node = tensor.node
    if used:
        known = _up_to(tx, producer)
        if differentiates(producer) or tensor.fake._version or any(arg not in known for arg in node.args[1:]):
            return tensor.unsupported(tx, f"{target.__name__}() after the tensor was used")
        producer.append(node)
    return node


def differentiates(first: Any) -> bool:
    """Whether a node after `first` runs a backward pass, which calls the hooks that are registered by then."""
    targets = (node.target for node in first.graph.nodes if node > first)
    return any(target is torch.autograd.grad or getattr(target, "runs_backward", False) for target in targets)


def _up_to(tx: Tracer, last: Any) -> set[Any]:
    """The nodes of the graph up to `last`."""
    found: set[Any] = set()
    for node in tx.graph.graph.nodes:
        found.add(node)
        if node is last:
            break
    return found
