"""Reads arguments and results of FX nodes with precise types, such as argument k as a node or the outputs of a graph.

`fx.Node.args` may hold anything, so each function asserts or casts to the type that its callers rely on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import fx
from torch.utils import _pytree as pytree


def node_at(node: fx.Node, k: int = 0) -> fx.Node:
    """Argument number k, which must be a node."""
    argument = node.args[k]
    assert isinstance(argument, fx.Node), f"argument {k} of {node.format_node()} is not a node"
    return argument


def getitem_key(node: fx.Node) -> int:
    """The index of the result that a `getitem` node takes."""
    key = node.args[1]
    assert isinstance(key, int), f"{node.format_node()} takes no single result"
    return key


def output_of(graph: fx.Graph) -> fx.Node:
    """The output node of a graph."""
    return next(iter(graph.find_nodes(op="output")))


def results_of(graph: fx.Graph) -> Sequence[fx.Node | None]:
    """The results of a graph that returns a flat sequence of tensors."""
    return cast(Sequence[fx.Node | None], output_of(graph).args[0])


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a value of nested tuples, lists and dicts."""
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


class JointResults(NamedTuple):
    """The lists that a joint graph returns (see `JointGraph`); until `separate_memory`, the tangents are among them."""

    returned: list[fx.Node]
    written: list[fx.Node]
    gradients: list[fx.Node | None]
    tangents: Sequence[fx.Node] = ()


def joint_results(graph: fx.Graph) -> JointResults:
    """The lists of results of a joint graph."""
    lists = cast(Sequence[list[fx.Node | None]], output_of(graph).args[0])
    return JointResults(_present(lists[0]), _present(lists[1]), lists[2], *map(_present, lists[3:]))


def _present(nodes: Iterable[fx.Node | None]) -> list[fx.Node]:
    return [node for node in nodes if node is not None]
