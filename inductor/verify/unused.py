"""Removes nodes of a torch-level graph on which none of its results depends.

fx's own dead code elimination recognizes a write only by an ATen operator's schema: at torch level it would remove
`view.copy_(x)`, `x.mul_(2)` or `torch.add(x, y, out=z)` if nothing uses the returned tensor. This module runs the graph
once and compares the version counters of tensors to see what each node writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ..fx_utils.arguments import tensors_in
from .compare import copies


class _Writes(fx.Interpreter):
    """Runs a graph; `written`: the storages to which each node writes."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.written: dict[fx.Node, set[int]] = {}

    def run_node(self, n: fx.Node) -> Any:
        taken = list(tensors([self.env[x] for x in n.all_input_nodes]))
        before = [x._version for x in taken]
        result = super().run_node(n)
        self.written[n] = {storage(x) for x, version in zip(taken, before, strict=True) if x._version != version}
        return result


def remove_unused(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Remove calls that compute nothing for a result and write to nothing that a result or an input holds. If the graph
    raises, all calls are kept."""
    run = _Writes(gm)
    try:
        run.run(*copies(inputs))
    except Exception:  # noqa: BLE001  the graph's own error may be what the caller investigates
        return
    live: set[fx.Node] = set()
    memory = {storage(x) for n in gm.graph.find_nodes(op="placeholder") for x in tensors(run.env[n])}
    memory |= {storage(x) for n in gm.graph.find_nodes(op="get_attr") for x in tensors(run.env[n])}
    for node in reversed(gm.graph.nodes):
        effect = bool(run.written[node] & memory) or node.is_impure() and not run.written[node]
        if node in live or effect:
            live.add(node)
            live.update(node.all_input_nodes)
            memory |= {storage(x) for n in (node, *node.all_input_nodes) if n in run.env for x in tensors(run.env[n])}
    for node in reversed(gm.graph.nodes):
        if node not in live and node.op != "placeholder":
            gm.graph.erase_node(node)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The strided tensors in a value."""
    return (x for x in tensors_in(value) if x.layout == torch.strided)


def storage(x: torch.Tensor) -> int:
    """A key for the memory of a tensor."""
    return x.untyped_storage()._cdata
