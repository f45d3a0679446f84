"""Splits off the views at the end of a graph on traceable wrapper subclasses, so that they run as in eager.

A result that shares memory with an argument or with another result must be a view of it for autograd too. Only the
class's `__torch_dispatch__` knows the class of such a view and what a write to it means. So the compiled graph returns
tensors that share no memory, and the view operators are called on these and on the arguments afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from ..aot.functionalize import NotFunctional, mutable, storage_of
from ..fx_utils.arguments import output_of, tensors_in
from ..modes import graph_module
from .functionalize import NodeRun, fake_trace
from .wrapper_tensors import Form, built, flattening, is_wrapper

Node = torch.fx.Node


@dataclass(frozen=True)
class Split:
    """`head(*args)` returns a tuple of tensors that share no memory with each other or with arguments. `tail(*args,
    *tensors)` computes the results of the whole graph from these tensors and the arguments."""

    head: torch.fx.GraphModule
    tail: Callable[..., Any]

    def joined(self, head: Callable[..., Any]) -> Callable[..., Any]:
        """The callable of the whole graph, given the compiled head."""
        tail = self.tail
        return lambda *args: tail(*args, *head(*args))


def split(
    gm: torch.fx.GraphModule, forms: Sequence[Form | None], fakes: Sequence[Any], mode: Any, grads: Sequence[bool]
) -> Split | None:
    """Split a graph whose arguments have these forms around the fake tensors `fakes`; `grads`: which of them require a
    gradient. None if no result shares memory with anything. NotFunctional if such a result cannot be computed in the
    tail."""
    run = _Observed(gm)
    with torch.enable_grad(), fake_trace(mode):
        args = built(fakes, forms)
        for i, needs in enumerate(grads):
            if needs:
                args[i] = (args[i].detach() if forms[i] is None else args[i]).requires_grad_()
        run.run(*args)
        return _Cut(gm, run).split()


def _plain_parts(value: Any) -> list[torch.Tensor]:
    """The plain tensors in a value; wrapper instances are taken apart."""
    found: list[torch.Tensor] = []
    for x in tensors_in(value):
        found += flattening([Form.of(x)])([x]) if is_wrapper(x) else [x]
    return found


def _memory(value: Any) -> list[Any]:
    """The storages of a value, one per plain tensor in it."""
    return [storage_of(x) for x in _plain_parts(value)]


def _layouts(value: Any) -> list[Any]:
    values = (*tensors_in(value), *_plain_parts(value))
    return [(x.shape, x.stride(), storage_of(x)) for x in values if not is_wrapper(x)]


class _Observed(NodeRun):
    """Runs a graph and records for each node its grad mode, storages, and whether it wrote to its inputs."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm)
        self.recorded: dict[Node, bool] = {}  # whether autograd recorded the node
        self.memory: dict[Node, list[Any]] = {}
        self.layouts: dict[Node, list[Any]] = {}
        self.writing: set[Node] = set()

    def run_node(self, n: Node) -> Any:
        self.recorded[n] = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        parts = [part for x in n.all_input_nodes for part in _plain_parts(self.env.get(x)) if not part.is_inference()]
        before = [part._version for part in parts]
        value = super().run_node(n)
        if before != [part._version for part in parts]:
            self.writing.add(n)
        if n.op != "output":
            self.memory[n], self.layouts[n] = _memory(value), _layouts(value)
        return value


class _Cut:
    """Chooses the nodes that run after the compiled graph."""

    def __init__(self, gm: torch.fx.GraphModule, run: _Observed) -> None:
        self.gm, self.run = gm, run
        first: dict[int, Node] = {}
        self.same = {node: first.setdefault(id(value), node) for node, value in run.env.items() if tensors_in(value)}
        self.given = [node for node in gm.graph.nodes if node.op in ("placeholder", "get_attr")]
        self.order = {node: k for k, node in enumerate(gm.graph.nodes)}
        self.leaves, self.structure = pytree.tree_flatten(mutable(output_of(gm.graph).args[0]))
        self.late: set[Node] = set()

    def split(self) -> Split | None:
        """The two parts; None if the tail would do nothing."""
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, Node) and leaf in self.same]
        wanted = self._first([self.same[leaf] for leaf in tensors])
        while (node := self._conflict(wanted)) is not None:
            self._check(node)
            self.late.add(node)
            wanted = self._first([x for x in wanted if x is not node] + [self.same[x] for x in node.all_input_nodes])
        if not self.late:
            return None
        for node in (*self.late, *wanted):
            if self.run.layouts[node] != _layouts(self.run.env[node]):
                raise NotFunctional("the metadata of the base of a returned view is changed in place")
        return Split(self._head(wanted), self._tail(wanted))

    def _first(self, nodes: Sequence[Node]) -> list[Node]:
        """The values that the head has to return, each once."""
        return [x for x in dict.fromkeys(nodes) if x not in self.given and x not in self.late]

    def _conflict(self, wanted: Sequence[Node]) -> Node | None:
        """The last returned node whose value shares memory with an argument or another returned value, and is a view
        that the tail can compute; None if no memory is shared."""
        memory = self.run.memory
        count: dict[Any, int] = {}
        for node in (*wanted, *self.given):
            for place in memory[node]:
                count[place] = count.get(place, 0) + 1
        shared = [
            x for x in wanted
            if not isinstance(self.run.env[x], torch.Tensor) or any(count[place] > 1 for place in memory[x])
        ]  # fmt: skip
        if not shared:
            return None
        movable = [x for x in shared if self._is_view(x)]
        if not movable:
            raise NotFunctional("results share memory, and none is a view of another")
        return max(movable, key=self.order.__getitem__)

    def _is_view(self, node: Node) -> bool:
        """Whether the node's value has no memory other than that of its inputs."""
        inputs = {place for x in node.all_input_nodes for place in self.run.memory[x]}
        return bool(inputs) and inputs.issuperset(self.run.memory[node])

    def _check(self, node: Node) -> None:
        if node in self.run.writing:
            raise NotFunctional("a returned view is created by an operator that writes")
        if not all(x in self.same for x in node.all_input_nodes):
            raise NotFunctional("a returned view depends on a number that the graph computes")

    def _head(self, wanted: Sequence[Node]) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        copies: dict[Node, Node] = {}
        for node in self.gm.graph.nodes:
            if node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[x] for x in wanted))
        for node in sorted(self.late, key=self.order.__getitem__, reverse=True):
            if not copies[node].users:
                graph.erase_node(copies[node])
        return graph_module(self.gm, graph, getattr(self.gm, "settings", ()))

    def _tail(self, wanted: Sequence[Node]) -> Callable[..., Any]:
        graph = torch.fx.Graph()
        copies: dict[Node, Node] = {}
        for node in self.given:
            if node.op == "placeholder":
                copies[node] = graph.node_copy(node)
        for k, node in enumerate(wanted):
            copies[node] = graph.placeholder(f"made_{k}")
        for node in self.given:
            if node.op == "get_attr":
                copies[node] = graph.node_copy(node)
        for node in sorted(self.late, key=self.order.__getitem__):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda x: copies[self.same[x]])
            copies[node] = graph.call_function(self._target(node), tuple(args), dict(kwargs))
        results = [copies[self.same[x]] if isinstance(x, Node) and x in self.same else x for x in self.leaves]
        if any(isinstance(x, Node) and x.graph is not graph for x in results):
            raise NotFunctional("a result is a number that the graph computes")
        graph.output(results)
        tail, structure = torch.fx.GraphModule(self.gm, graph), self.structure
        return lambda *args: pytree.tree_unflatten(tail(*args), structure)

    def _target(self, node: Node) -> Callable[..., Any]:
        """The function that the node calls, in the grad mode in which the graph calls it."""
        if node.op not in ("call_function", "call_method"):
            raise NotFunctional(f"a returned view is created by {node.op}")
        run = _method(node.target) if node.op == "call_method" else node.target
        assert callable(run)
        return run if self.run.recorded[node] else _unrecorded(run)


def _method(name: Any) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    return call


def _unrecorded(run: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return run(*args, **kwargs)

    return call
