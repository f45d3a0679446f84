"""Which results of a graph share memory, and which are objects of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ..errors import Unsupported
from ..fx_utils.arguments import results_of
from ..ir.buffer import InputBuffer, Layout
from ..ir.nodes import BufferView


def distinct_objects(nodes: Sequence[Any], outs: Sequence[Any]) -> frozenset[int]:
    """The positions of results that must be distinct tensor objects although they have the memory and layout of an
    input or an earlier result. The same node returned twice is one object."""
    found = set()
    first: dict[tuple[str, Layout], Any] = {}
    for k, (node, out) in enumerate(zip(nodes, outs)):
        if not isinstance(out, BufferView) or not isinstance(node, fx.Node):
            continue
        whole = isinstance(out.buffer, InputBuffer) and out.layout == out.buffer.layout
        if first.setdefault((out.buffer.name, out.layout), node) is not node or (whole and node.op != "placeholder"):
            found.add(k)
    return frozenset(found)


def check_shared(outs: Sequence[Any], groups: Sequence[int | None]) -> None:
    """Raises Unsupported if results that share memory in eager, those of the same group, would not do so."""
    owner: dict[int, str] = {}
    for out, group in zip(outs, groups):
        if group is not None and owner.setdefault(group, out.buffer.name) != out.buffer.name:
            raise Unsupported("results that share memory because of operators without a lowering")


def separate_results(gm: fx.GraphModule) -> list[int | None]:
    """The argument `shared` of `lower_graph` for results that each get their own memory, except inputs and views of
    inputs."""
    inputs = {_storage(n) for n in gm.graph.find_nodes(op="placeholder")}
    numbers: dict[fx.Node, int] = {}
    return [
        numbers.setdefault(r, len(numbers)) if isinstance(r, fx.Node) and _storage(r) not in inputs else None
        for r in results_of(gm.graph)
    ]


def _storage(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else node
