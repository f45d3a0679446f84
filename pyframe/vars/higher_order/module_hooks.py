"""Models full backward hooks of modules (`register_full_backward_hook` and `register_full_backward_pre_hook`).

`nn.Module._call_impl`, which is traced, creates a `BackwardHook` and passes the arguments and the results of `forward`
through it. The graph does the same to the real tensors, with nodes that a backend does not compile: the program's hooks
run in the backward pass, as in eager, and are not traced. They are inputs of the graph, as is the module.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.hooks import BackwardHook

from ...core.in_order import for_autograd, in_order
from ..containers.sequence import ListVar, TupleVar
from ..protocol.base import Var
from ..protocol.const import MethodVar
from ..protocol.graph_object import GraphObjectVar
from ..registry import Args, Kwargs, register
from ..torch_objects.tensor import TensorVar
from ..torch_objects.tensor_subclass import TensorSubclassVar
from ..tracer import Tracer


@for_autograd
@in_order
def make_backward_hook(hooks: int, inputs: int, module: Any, *given: Any) -> BackwardHook:
    """The object that eager creates for a call of `module` with `inputs` arguments. The first `hooks` of `given` are
    its hooks, the others its pre-hooks."""
    made = BackwardHook(module, list(given[:hooks]), list(given[hooks:]))
    made.n_inputs = inputs
    return made


@for_autograd
@in_order
def setup_input_hook(hook: BackwardHook, layout: tuple[bool, ...], *tensors: torch.Tensor) -> tuple[Any, ...]:
    """The tensors among the arguments after the hook has seen them. `layout`: which arguments are tensors."""
    return _tensors(hook.setup_input_hook(_with_none(layout, tensors)))


@for_autograd
@in_order
def setup_output_hook(hook: BackwardHook, layout: tuple[bool, ...], *tensors: torch.Tensor) -> tuple[Any, ...]:
    """The tensors among the results after the hook has seen them."""
    return _tensors(hook.setup_output_hook(_with_none(layout, tensors)))


def _with_none(layout: tuple[bool, ...], tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    rest = iter(tensors)
    return tuple(next(rest) if is_tensor else None for is_tensor in layout)


def _tensors(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value for value in values if value is not None)


class BackwardHookVar(Var):
    """A `BackwardHook` of one call of a module. The graph creates it (`made`) when a tensor needs it."""

    __slots__ = ("hooks", "inputs", "made", "module", "pre_hooks")

    def __init__(self, module: Var, hooks: Sequence[Var], pre_hooks: Sequence[Var]) -> None:
        super().__init__()
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.inputs = 0
        self.made: GraphObjectVar | None = None

    def python_type(self) -> type:
        return BackwardHook

    def describe(self) -> str:
        return f"the backward hooks of {self.module.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        known = name in ("setup_input_hook", "setup_output_hook")
        return MethodVar(self, name) if known else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        (given,) = args
        if name == "setup_input_hook":
            assert isinstance(given, TupleVar)
            self.inputs = len(given.items)
            return TupleVar(self._through(tx, setup_input_hook, given.items))
        if not isinstance(given, TupleVar):
            return self._through(tx, setup_output_hook, [given])[0]
        if type(given) is not TupleVar:
            return self.unsupported(tx, f"a module that returns {given.describe()}")
        return TupleVar(self._through(tx, setup_output_hook, given.items))

    def _through(self, tx: Tracer, setup: Any, values: Sequence[Var]) -> list[Var]:
        """`values` with the tensors among them as `setup` returns them."""
        tensors = [value for value in values if isinstance(value, TensorVar)]
        if not (torch.is_grad_enabled() and any(tensor.fake.requires_grad for tensor in tensors)):
            return list(values)
        if tx.graph.stack.is_nested or any(isinstance(tensor, TensorSubclassVar) for tensor in tensors):
            return self.unsupported(tx, "a call in a nested graph or with tensor subclasses")
        with tx.graph.fake_mode, torch._C.DisableTorchFunctionSubclass():
            fakes = BackwardHookFunction.apply(*(tensor.fake for tensor in tensors))
        layout = tuple(isinstance(value, TensorVar) for value in values)
        found = iter(tx.graph.record(setup, [self._object(tx), layout, *tensors], fakes))
        return [next(found) if isinstance(value, TensorVar) else value for value in values]

    def _object(self, tx: Tracer) -> GraphObjectVar:
        if self.made is None:
            given = [_existing(tx, each) for each in (self.module, *self.hooks, *self.pre_hooks)]
            node = tx.graph.call_for_effect(make_backward_hook, [len(self.hooks), self.inputs, *given], {})
            self.made = GraphObjectVar(BackwardHook, node)
        return self.made


def _existing(tx: Tracer, value: Var) -> GraphObjectVar:
    """A module or hook as an input of the graph."""
    if value.source is None:
        return value.unsupported(tx, "a backward hook or module that did not exist before the graph")
    return GraphObjectVar(value.python_type(), None, None, value.source)


@register(BackwardHook)
def _backward_hook(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    module, hooks, pre_hooks = args
    assert isinstance(hooks, ListVar) and isinstance(pre_hooks, ListVar)
    for each in itertools.chain(hooks.items, pre_hooks.items):
        _existing(tx, each)
    return BackwardHookVar(module, hooks.items, pre_hooks.items)
