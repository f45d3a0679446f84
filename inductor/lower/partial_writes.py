"""Operators that replace a part of a tensor: `slice_scatter` and `select_scatter` as loops, and how each operator is
done in place where `in_place.py` finds that the old tensor is not needed any more.

Functionalization turns `cache[:, 3] = x` into such an operator on the whole cache and a final copy into the input.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..fx_utils.arguments import node_at
from ..ir.buffer import Layout
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype, dense_order
from ..ir.size import AnySize, Size
from ..ir.symbolic import Index
from .common import drop
from .registry import Unlowered, lowering
from .views import first_of_slice, sliced

aten = torch.ops.aten

# Operators that write a view of their first argument: the operator that makes that view. Both take the same arguments
# after the first tensors.
VIEW_OF = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}
# Operators of which ATen has a variant that writes to its first argument, and nothing else.
_WITH_VARIANT = frozenset(
    "index_put index_copy index_add index_fill index_reduce scatter scatter_add scatter_reduce masked_scatter".split()
)


@functools.cache
def in_place_variant(target: Any) -> torch._ops.OpOverload | None:
    """The overload that does the same in its first argument: aten.index_put_.default for aten.index_put.default. None
    if `target` is not an operator that replaces elements of its first argument."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    name = target._schema.name.removeprefix("aten::")
    packet = getattr(aten, f"{name}_", None) if name in _WITH_VARIANT else None
    if packet is None or target._overloadname not in packet.overloads():
        return None
    variant: torch._ops.OpOverload = getattr(packet, target._overloadname)
    names = [[argument.name for argument in op._schema.arguments] for op in (target, variant)]
    return variant if names[0] == names[1] else None


def is_partial_write(node: fx.Node) -> bool:
    """Whether the result of a node is its first argument with some elements replaced or added to."""
    return node.op == "call_function" and (node.target in VIEW_OF or in_place_variant(node.target) is not None)


def arguments_of_view(node: fx.Node) -> tuple[Any, ...]:
    """The arguments, after the tensor, of a `slice` or `select` that makes the view which a node of `VIEW_OF` writes,
    or of such a node itself; with their defaults."""
    skip = 2 if node.target in VIEW_OF else 1
    target: Any = node.target
    given = (*node.args, *(node.kwargs.get(a.name, a.default_value) for a in target._schema.arguments[len(node.args):]))
    return tuple(given[skip:])


def written_view(base: BufferView, node: fx.Node) -> Layout:
    """The layout of the part of `base` that a node of `VIEW_OF` writes."""
    dim, start, *rest = arguments_of_view(node)
    dim %= len(base.size)
    if node.target is aten.select_scatter.default:
        view = drop(sliced(base, dim, start % base.size[dim], 1), [dim])
    else:
        length = node_at(node, 1).meta["val"].shape[dim]
        view = sliced(base, dim, first_of_slice(start, base.size[dim]), length, step=rest[1])
    assert isinstance(view, BufferView)  # slices of memory are in memory
    return view.layout


@lowering("slice_scatter")
def slice_scatter(
    graph: Any, x: TensorValue, src: TensorValue, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> TensorValue:  # fmt: skip
    """x with x[start:end:step] along one dimension replaced by `src`."""
    if src.dtype != x.dtype or any(_is_zero(n) for n in (*src.size, *x.size)):
        raise Unlowered
    dim %= len(x.size)
    first, length = first_of_slice(start, x.size[dim]), src.size[dim]
    if type(step) is not int or len(src.size) != len(x.size):
        raise Unlowered

    def inside(index: Sequence[Index]) -> tuple[Any, list[Index]]:
        at = index[dim] - first
        own = list(index)
        own[dim] = at if step == 1 else at // step
        place = ops.index_expr(index[dim], torch.int64)
        mask = ops.logical_and(
            ops.ge(place, ops.constant(first, torch.int64)),
            ops.lt(place, ops.constant(first + (length - 1) * step + 1, torch.int64)),
        )
        if step != 1:
            rest = ops.index_expr(at % step, torch.int64)
            mask = ops.logical_and(mask, ops.eq(rest, ops.constant(0, torch.int64)))
        return mask, [0 if n == 1 else i for i, n in zip(own, src.size)]

    return _replaced(graph, x, src, inside)


@lowering("select_scatter")
def select_scatter(graph: Any, x: TensorValue, src: TensorValue, dim: int, index: int) -> TensorValue:
    """x with position `index` of one dimension replaced by `src`."""
    if src.dtype != x.dtype or any(_is_zero(n) for n in x.size) or not isinstance(index, int | Size):
        raise Unlowered
    dim %= len(x.size)
    place = index % x.size[dim]
    if len(src.size) != len(x.size) - 1:
        raise Unlowered

    def inside(at: Sequence[Index]) -> tuple[Any, list[Index]]:
        here = ops.index_expr(at[dim], torch.int64)
        return ops.eq(here, ops.constant(place, torch.int64)), [i for d, i in enumerate(at) if d != dim]

    return _replaced(graph, x, src, inside)


def _is_zero(n: AnySize) -> bool:
    return type(n) is int and n == 0


def _replaced(graph: Any, x: TensorValue, src: TensorValue, inside: Any) -> Pointwise:
    """`x`, where `inside(index)` gives a mask and the index of the element of `src` that replaces it."""
    dtype = compute_dtype(x.dtype)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        mask, own = inside(index)
        value = ops.masked(mask, lambda: ops.to_dtype(src.load(own), dtype), 0)
        return ops.where(mask, value, x.load(index))

    stride = tuple(graph.val.stride())
    dense = dense_order(graph.val.shape, stride) is not None
    return Pointwise(
        x.device, x.dtype, tuple(x.size), inner_fn, x.reads + src.reads, x.work + src.work + 3,
        stride if dense else None,
    )  # fmt: skip
