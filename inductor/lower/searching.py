"""Lowerings of `searchsorted` and `bucketize`: a bisection for each element, whose steps are written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue
from ..ir.symbolic import Index
from .common import is_value, stored
from .registry import LoweringGraph, Unlowered, lowering

# A sequence so long that its positions need more than 32 bits is left to ATen.
LONGEST = 2**31 - 1


def position(sequence: TensorValue, before: Sequence[Index], value: Any, right: bool) -> Any:
    """The position in a row of `sequence`, int32, ahead of which `value` keeps the row in order: the first one, or with
    `right` the last one. `before`: the index of the row.

    Compares as ATen does, which takes a NaN for the greatest value and, in the row, for one that is less."""
    length = sequence.size[-1]
    dtype = torch.int32
    low, high = ops.constant(0, dtype), ops.constant(length, dtype)
    for _ in range(length.bit_length()):
        middle = ops.bitwise_right_shift(ops.add(low, high), ops.constant(1, dtype))
        # Of an empty range the middle is its end, which may be that of the row.
        at = ops.minimum(middle, ops.constant(length - 1, dtype))
        element = sequence.load((*before, ops.indirect(at, length, True)))
        reached = ops.gt(element, value) if right else ops.ge(element, value)
        open_ = ops.lt(low, high)
        after = ops.logical_and(open_, ops.logical_not(reached))
        low = ops.where(after, ops.add(middle, ops.constant(1, dtype)), low)
        high = ops.where(ops.logical_and(open_, reached), middle, high)
    return low


def _search(graph: LoweringGraph, sequence: TensorValue, values: TensorValue, right: bool) -> Pointwise:
    length = sequence.size[-1] if sequence.size else 0
    if type(length) is not int or not 0 < length <= LONGEST or values.dtype != sequence.dtype:
        raise Unlowered
    if values.dtype.is_complex or values.dtype == torch.bool or values.device != sequence.device:
        raise Unlowered
    if len(sequence.size) > 1 and tuple(sequence.size[:-1]) != tuple(values.size[:-1]):
        raise Unlowered
    sequence, values = stored(sequence.realize(graph)), stored(values)
    dtype, steps = graph.val.dtype, length.bit_length()

    def inner_fn(index: tuple[Index, ...]) -> Any:
        before = index[:-1] if len(sequence.size) > 1 else ()
        return ops.to_dtype(position(sequence, before, values.load(index), right), dtype)

    return Pointwise(
        graph.val.device, dtype, tuple(graph.val.shape), inner_fn, values.reads + steps, values.work + 4 * steps,
        tuple(graph.val.stride()),
    )  # fmt: skip


@lowering("searchsorted")
def searchsorted(
    graph: LoweringGraph,
    sequence: TensorValue,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorValue | None = None,
) -> Pointwise:
    """The position in a row of `sequence` at which each value belongs."""
    if not is_value(values) or sorter is not None:
        raise Unlowered
    return _search(graph, sequence, values, right or side == "right")


@lowering("bucketize")
def bucketize(
    graph: LoweringGraph, values: Any, boundaries: TensorValue, *, out_int32: bool = False, right: bool = False
) -> Pointwise:
    """The number of the interval between `boundaries` in which each value is."""
    if not is_value(values) or len(boundaries.size) != 1:
        raise Unlowered
    return _search(graph, boundaries, values, right)
