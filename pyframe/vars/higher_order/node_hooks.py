"""Models `tensor.grad_fn.register_hook(fn)` and `register_prehook(fn)`.

The node that computes the tensor becomes a call that also registers the hooks. Backends run such a call by itself, so
that the autograd node is that of the operator, and its gradients are what they are in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle

from ...core.in_order import for_autograd, in_order
from ..codegen import Codegen
from ..containers.iterator import NotRebuilt
from ..protocol.base import Var
from ..protocol.const import ConstVar, MethodVar
from ..registry import Args, Kwargs, register
from ..torch_objects.tensor import GradFnVar
from ..tracer import Tracer
from .called_hooks import Ingredients, Make, NotKnown
from .tensor_hooks import RegisteredHook, computing_node, differentiates


class NodeHookVar(Var):
    """The handle of a hook of an autograd node. `hooks`: all hooks of that node."""

    __slots__ = ("hook", "hooks", "step")

    def __init__(self, hooks: list[Hook], hook: Hook, step: int) -> None:
        super().__init__()
        self.hooks, self.hook, self.step = hooks, hook, step

    def python_type(self) -> type:
        return RemovableHandle

    def describe(self) -> str:
        return "the handle of a hook of an autograd node"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name) if name == "remove" else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name != "remove" or differentiates(self.hook.node):
            return self.unsupported(tx, f"method {name!r}")
        if self.hook in self.hooks:
            self.hooks.remove(self.hook)
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        raise NotRebuilt(self.describe(), self.step, "unsupported-object")


class Hook:
    """A hook of the autograd node of the tensor that `node` computes; `method` registers it."""

    def __init__(self, node: Any, method: str, make: Make) -> None:
        self.node, self.method, self.make = node, method, make


class _Computes:
    """What a node calls instead of `function`, to register `hooks` on the result's autograd node as well."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.hooks: list[Hook] = []

        @for_autograd
        @in_order
        def computed_with_hooks(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            for hook in self.hooks:
                if not isinstance(result, FakeTensor):
                    getattr(result.grad_fn, hook.method)(hook.make(()))
            return result

        computed_with_hooks.__qualname__, computed_with_hooks.__module__ = "computed_with_hooks", __name__
        computed_with_hooks.computes = self  # type: ignore[attr-defined]
        self.target = computed_with_hooks


def _hooks_of(tx: Tracer, function: GradFnVar) -> list[Hook]:
    """The hooks of an autograd node, to which others can be added. Breaks the graph if the node is not that of one
    operator of the graph."""
    tensor, node = function.tensor, computing_node(function.result)
    computes = getattr(node.target, "computes", None)
    if isinstance(computes, _Computes):
        return computes.hooks
    known = node.op in ("call_function", "call_method") and node.target is not operator.getitem
    known = known and computing_node(tensor.node) is node and not getattr(node.target, "in_order", False)
    if not known or tx.graph.in_mode:
        return function.unsupported(tx, "a hook") or []
    called: Any = node.target
    computes = _Computes(getattr(torch.Tensor, called) if node.op == "call_method" else called)
    node.op, node.target = "call_function", computes.target
    return computes.hooks


def _model(method: str) -> Callable[[Tracer, Args, Kwargs], Var]:
    def registered(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        function, *others = args
        assert isinstance(function, GradFnVar)
        fn = others[0] if others else kwargs["fn"]
        ingredients = Ingredients(tx)
        try:
            make = ingredients.make(fn)
        except NotKnown:
            return function.unsupported(tx, f"{method}() of this hook")
        if ingredients.tensors or not tx.graph.history.calls_hooks or tx.graph.stack.is_nested:
            return function.unsupported(tx, f"{method}() of this hook")
        hooks = _hooks_of(tx, function)
        node = computing_node(function.result)
        if differentiates(node):
            return function.unsupported(tx, f"{method}() after a backward pass")
        ingredients.guard()
        hook = Hook(node, method, make)
        hooks.append(hook)
        tx.graph.registered_hooks.append(RegisteredHook(tx, function.tensor, fn, node, ingredients))
        return NodeHookVar(hooks, hook, tx.steps)

    return registered


for _name in ("register_hook", "register_prehook"):
    register(Node, method=_name)(_model(_name))
