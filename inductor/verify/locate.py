"""Finds the first operator of a compiled graph whose value differs from ATen's, and the kernel that computes it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..fx_utils.dead_code import remove_unused
from .compare import Outcome, copies, difference
from .recompile import aten_graphs, compile_aten


@dataclass(frozen=True)
class Fault:
    """The first node of an ATen graph whose compiled value differs. `kernel`: the name of the kernel that computes it;
    None if ATen does."""

    node: fx.Node
    kernel: str | None


def locate(gm: fx.GraphModule, inputs: Sequence[Any]) -> Fault | None:
    """The first operator of `gm` that differs, in the compiled forward or else the backward; None if none does."""
    for graph, given in aten_graphs(gm, inputs):
        fault = _in_graph(graph, given)
        if fault is not None:
            return fault
    return None


def _in_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Fault | None:
    nodes = [node for node in graph.graph.nodes if _is_tensor(node)]
    fault = _first_of(graph, nodes, inputs)
    if fault is not None or not nodes:
        return fault
    # Returning all values may have hidden the fault by changing the kernels; search the shortest prefix that shows it.
    low, high = 0, len(nodes) - 1
    while low < high:
        middle = (low + high) // 2
        if _first_of(graph, [nodes[middle]], inputs) is not None:
            high = middle
        else:
            low = middle + 1
    return _first_of(graph, [nodes[low]], inputs)


def _is_tensor(node: fx.Node) -> bool:
    writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
    return node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor) and not writes


def _first_of(graph: fx.GraphModule, nodes: Sequence[fx.Node], inputs: Sequence[Any]) -> Fault | None:
    """The first of these nodes whose value differs if the graph is compiled to return all of them."""
    part = returning(graph, nodes)
    compiled, kernels = compile_aten(part)
    with torch.no_grad():
        expected = _values(part, copies(inputs))
        exact = _values(part, copies(inputs, torch.Tensor.double))
        found = compiled(*copies(inputs))
    if expected is None:
        return None
    for node, kernel, ours, theirs, reference in zip(nodes, kernels, found, expected, exact or expected):
        if difference(Outcome([ours]), Outcome([theirs]), functools.partial(_always, Outcome([reference]))) is not None:
            return Fault(node, kernel)
    return None


def _always(outcome: Outcome, convert: Any) -> Outcome:
    return outcome


def _values(graph: fx.GraphModule, inputs: Sequence[Any]) -> list[Any] | None:
    try:
        return list(graph(*inputs))
    except RuntimeError:  # such as operators that do not accept operands of two dtypes
        return None


def returning(graph: fx.GraphModule, nodes: Sequence[fx.Node]) -> fx.GraphModule:
    """A copy of an ATen graph that returns the values of `nodes` and writes to no input."""
    new = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.op == "output":
            continue
        if node.target is torch.ops.aten.copy_.default:
            env[node] = env[node.args[1]]
            continue
        env[node] = new.node_copy(node, env.__getitem__)
    new.output([env[node] for node in nodes])
    part = fx.GraphModule(graph, new)
    remove_unused(part.graph)
    part.recompile()
    return part
