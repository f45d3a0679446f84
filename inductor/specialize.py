"""Graphs whose sizes vary from call to call (torch.compile sends them with symbolic sizes): one compilation a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

MOST_SIZES = 32  # beyond so many, a new size runs the graph as it is


def is_symbolic(inputs: Sequence[Any]) -> bool:
    """Whether an input is a number, or a tensor of sizes that are not known."""
    return any(
        not isinstance(x, torch.Tensor) or any(type(n) is not int for n in (*x.shape, *x.stride())) for x in inputs
    )


class Specialized:
    """Calls `compile_static(gm, tensors)` for each new combination of sizes and numbers, and then its result."""

    def __init__(self, gm: fx.GraphModule, compile_static: Callable[..., Callable[..., Any]]) -> None:
        self.gm, self.compile_static = gm, compile_static
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        key = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in args)
        call = self.compiled.get(key)
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        if call is None:
            if len(self.compiled) >= MOST_SIZES:
                return self.gm.forward(*args)
            numbers = {i: x for i, x in enumerate(args) if not isinstance(x, torch.Tensor)}
            fixed = with_numbers(self.gm, numbers)
            call = self.compiled[key] = self.compile_static(fixed, tensors)
            self.gm.meta["compile_report"] = fixed.meta["compile_report"]
        return call(*tensors)


def with_numbers(gm: fx.GraphModule, numbers: dict[int, Any]) -> fx.GraphModule:
    """A copy of `gm` without the placeholders at these positions, which have these values."""
    graph = fx.Graph()
    env: dict[fx.Node, Any] = {}
    position = 0
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            env[node] = numbers[position] if position in numbers else graph.node_copy(node)
            position += 1
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), env.__getitem__)
        env[node] = graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        env[node].meta = dict(node.meta)
    return fx.GraphModule(gm, graph)
