"""The registry of lowerings: which function lowers which ATen operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch
import torch.fx as fx

from ..ir.body import LoopBody
from ..ir.buffer import Layout
from ..ir.nodes import Allocator, BufferView

Lowering: TypeAlias = "Callable[..., Any]"

LOWERINGS: dict[str, Lowering] = {}


class LoweringGraph(Allocator, Protocol):
    """The part of `GraphLowering` that lowerings use. `node` is the node that is being lowered, and `val` its fake
    result: a tensor, or a tuple of tensors. `row_products` is as for `lower_graph`."""

    node: fx.Node
    val: Any
    row_products: bool

    def strided_view(self) -> Any:
        """The results of a view operator, with the strides and offsets of their fake tensors."""
        ...

    def add_call(self, target: Any, args: Sequence[Any], position: int, layout: Layout) -> BufferView:
        """Adds a call of an operator with several results, of which only that at `position` is used; returns that.
        `args` are BufferViews and plain values."""
        ...

    def store_at_indices(self, base: BufferView, write: Any) -> None:
        """Adds the loops of an `IndexWrite` to memory that the graph may write."""
        ...

    def add_loops(self, base: BufferView, body: LoopBody) -> None:
        """Adds loops that write to the memory `base`."""
        ...


class Unlowered(Exception):
    """Raised by a lowering for arguments that it does not support; the graph then calls the ATen operator instead."""


def lowering(*names: str) -> Callable[[Lowering], Lowering]:
    """Registers `fn(graph, *args, **kwargs)` for all overloads of the named operators.

    ATen operators are named without "aten."; those of the pyframe namespace are written "pyframe::name". Tensor
    arguments arrive as TensorValues. `graph.val` is the fake result: a tensor or a tuple of tensors.
    """

    def register(fn: Lowering) -> Lowering:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"aten.{name} has a lowering already")
            if "::" not in name and not hasattr(torch.ops.aten, name):
                raise ValueError(f"aten.{name} does not exist")
            LOWERINGS[name] = fn
        return fn

    return register


def find(target: Any) -> Lowering | None:
    """The lowering of an overload of the aten or pyframe namespace, or None."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "pyframe"):
        return None
    return LOWERINGS.get(target._schema.name.removeprefix("aten::"))
