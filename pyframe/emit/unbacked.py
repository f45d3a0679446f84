"""Unbacked numbers: SymInts, SymFloats and SymBools whose value is known only when the graph runs, such as the result
of `.item()` and sizes that depend on data. Their graph nodes are created on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx


class LazyUnbackedNode:
    """An unbacked number whose node is added to the graph on first use."""

    def __init__(self, graph: fx.Graph, value: Any, build: Callable[[], fx.Node]) -> None:
        """`value`: its SymInt or SymFloat."""
        self.graph, self.value, self._build = graph, value, build
        self._node: fx.Node | None = None

    @property
    def node(self) -> fx.Node:
        if self._node is None:
            self._node = self._build()
            self._node.meta.setdefault("val", self.value)
        return self._node


def size_of(graph: fx.Graph, tensor: fx.Node, dim: int) -> Callable[[], fx.Node]:
    """A function that adds the node of a tensor's size, right after the tensor's node."""

    def build() -> fx.Node:
        with graph.inserting_after(tensor):
            node = graph.call_method("size", (tensor, dim))
        node.meta["stack_trace"] = tensor.meta.get("stack_trace", "")
        return node

    return build


def truth_as_int(graph: fx.Graph, truth: fx.Node) -> Callable[[], fx.Node]:
    """A function that adds a node that converts a bool to an int, right after the bool's node."""

    def build() -> fx.Node:
        with graph.inserting_after(truth):
            return graph.call_function(int, (truth,))

    return build


def new_numbers(result: Any, is_new: Callable[[Any], bool]) -> Iterator[tuple[int | None, Any]]:
    """The new symbols in a number or a tensor's shape, each with its dimension, or None for the number itself."""
    if isinstance(result, torch.Tensor):
        for dim, size in enumerate(result.shape):
            if isinstance(size, torch.SymInt) and not size.node.is_nested_int() and is_new(size.node.expr):
                yield dim, size
    elif isinstance(result, torch.SymInt | torch.SymFloat) and is_new(result.node.expr):
        yield None, result
