"""What the autograd graph of a backward pass says about it: the order in which torch's engine runs its nodes, and
which nodes it runs at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

Node = Any  # `torch.autograd.graph.Node`


class AutogradGraph:
    """The graph below the tensors or edges `outputs`; inputs: those whose gradients are wanted, all leaves if empty."""

    def __init__(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        self.roots = [_node_of(x) for x in _sequence(outputs)]
        self.inputs = [_node_of(x) for x in _sequence(inputs)]

    def _dependencies(self) -> Counter[Node]:
        """How many edges lead to each node."""
        counts, seen, stack = Counter(self.roots), set(self.roots), list(self.roots)
        while stack:
            for child, _ in stack.pop().next_functions:
                if child is not None:
                    counts[child] += 1
                    if child not in seen:
                        seen.add(child)
                        stack.append(child)
        return counts

    def _described(self) -> list[Node]:
        """The nodes in the order in which the engine describes them, after the root of the graph."""
        missing = self._dependencies()
        found: list[Node] = []
        stack: list[Node] = []
        for node in self.roots:
            _arrive(node, missing, stack.append)
        while stack:
            node = stack.pop()
            found.append(node)
            for child, _ in node.next_functions:
                _arrive(child, missing, stack.append)
        return found

    def order(self, names: Sequence[str]) -> list[int]:
        """For nodes that the engine has described in the order of their names: the numbers of the names, in the order
        in which the engine would run them.

        It runs the node that was created last of those whose gradients are complete, and accumulates into leaves as
        soon as possible.
        """
        described = self._described()
        if [node.name() for node in described] != list(names[1:]):  # the engine has left a part of the graph out
            return list(range(len(names)))
        places = {node: k for k, node in enumerate(described, 1)}
        missing, ready, found = self._dependencies(), _ReadyQueue(), [0]
        for node in self.roots:
            _arrive(node, missing, ready.push)
        while ready.nodes:
            node = ready.pop()
            found.append(places[node])
            for child, _ in node.next_functions:
                _arrive(child, missing, ready.push)
        return found

    def runs(self, asked: Node) -> bool:
        """Whether the engine runs a node in this backward pass."""
        nodes = self._described()
        if not self.inputs:
            return asked in nodes
        running = set(self.inputs)
        for node in reversed(nodes):
            if any(child in running for child, _ in node.next_functions):
                running.add(node)
        return asked in running and asked in nodes


def _sequence(values: Any) -> Sequence[Any]:
    return (values,) if isinstance(values, torch.Tensor | GradientEdge) else tuple(values)


def _node_of(x: Any) -> Node:
    return x.node if isinstance(x, GradientEdge) else get_gradient_edge(x).node


def _arrive(node: Node, missing: Counter[Node], ready: Any) -> None:
    """One gradient of `node` is there; call `ready` if it was the last one."""
    if node is not None:
        missing[node] -= 1
        if not missing[node]:
            ready(node)


class _ReadyQueue:
    """The queue of the engine: a heap, of which the last created node is taken first. Nodes of equal age, which
    accumulate into leaves, come in the order that `std::priority_queue` gives them."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def push(self, node: Node) -> None:
        self.nodes.append(node)
        self._rise(len(self.nodes) - 1)

    def pop(self) -> Node:
        first, last = self.nodes[0], self.nodes.pop()
        if not self.nodes:
            return first
        at, count = 0, len(self.nodes)
        while 2 * at + 2 < count:  # the hole sinks to the bottom, and the last node rises from there
            child = 2 * at + 2
            if _age(self.nodes[child]) < _age(self.nodes[child - 1]):
                child -= 1
            self.nodes[at], at = self.nodes[child], child
        if 2 * at + 2 == count:
            self.nodes[at], at = self.nodes[2 * at + 1], 2 * at + 1
        self.nodes[at] = last
        self._rise(at)
        return first

    def _rise(self, at: int) -> None:
        node = self.nodes[at]
        while at and _age(self.nodes[(at - 1) // 2]) < _age(node):
            self.nodes[at], at = self.nodes[(at - 1) // 2], (at - 1) // 2
        self.nodes[at] = node


def _age(node: Node) -> int:
    found: int = node._sequence_nr()
    return found
