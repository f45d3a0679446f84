"""`scatter_reduce` and `index_reduce` as loops with atomic operations, on a GPU; on the CPU means of rows by
`index_reduce`, in the order of the indices.

Extremes of floating-point numbers are those of integers that are in the same order (`_ordered`): the extremes of the
numbers themselves that GPUs find atomically lose NaN. Means are sums and counts. Half precision and narrow integers
take a copy in 32 bits, as sums do (`index_writes.py`); sums and products are rounded in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..ir.buffer import Buffer, Layout
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype, dense_order, store
from .common import derived, stored
from .index_write import IndexWrite
from .index_writes import adds_rows, copy_pays, is_possible, write_along, write_at
from .registry import LoweringGraph, Unlowered, lowering

_WIDE = (torch.float32, torch.float64, torch.int32, torch.int64)
_HALF = (torch.float16, torch.bfloat16)
_NARROW = (torch.int8, torch.int16, torch.uint8)
_MODES = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}  # of stores


@dataclass(frozen=True)
class _Kind:
    """How a reduction of elements of `dtype` is done: with stores of `mode` in memory of the dtype `wide`, in which
    `neutral` changes nothing. `encode` and `decode` convert elements, in the compute dtype of `dtype`."""

    mode: str
    dtype: torch.dtype
    wide: torch.dtype
    neutral: int
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _kind(reduce: str, dtype: torch.dtype) -> _Kind:
    """Raises Unlowered for dtypes that GPUs cannot combine atomically."""
    mode = _MODES.get(reduce)
    if mode is None or dtype not in _WIDE + _HALF + (_NARROW if mode != "add" else ()):
        raise Unlowered
    computed = compute_dtype(dtype)
    wide = torch.int32 if dtype in _NARROW else computed
    if mode in ("add", "mul"):
        encode, neutral = (lambda v: ops.to_dtype(v, wide)), int(mode == "mul")
        return _Kind(mode, dtype, wide, neutral, encode, lambda v: ops.to_dtype(v, computed))
    if dtype.is_floating_point:
        wide = torch.int64 if dtype == torch.float64 else torch.int32
    limits = torch.iinfo(wide)
    first, last = (limits.min, limits.max) if mode == "max" else (limits.max, limits.min)
    if not dtype.is_floating_point:
        return _Kind(mode, dtype, wide, first, lambda v: ops.to_dtype(v, wide), lambda v: ops.to_dtype(v, dtype))

    def encode_number(v: Any) -> Any:
        return ops.where(ops.isnan(v), ops.constant(last, wide), _ordered(ops.bitcast(v, wide), wide))

    return _Kind(mode, dtype, wide, first, encode_number, lambda v: ops.bitcast(_ordered(v, wide), computed))


def _ordered(bits: Any, dtype: torch.dtype) -> Any:
    """The bits of a floating-point number as a signed integer such that the order is that of the numbers, and such an
    integer as the bits. The least and the greatest integer are bits of NaN. `dtype`: of the integers."""
    limits = torch.iinfo(dtype)
    sign = ops.bitwise_right_shift(bits, ops.constant(limits.bits - 1, dtype))
    return ops.bitwise_xor(bits, ops.bitwise_and(sign, ops.constant(limits.max, dtype)))


def _reduced(
    graph: LoweringGraph,
    x: TensorValue,
    source: TensorValue,
    reduce: str,
    include_self: bool,
    write_to: Callable[[BufferView, TensorValue], IndexWrite | None],
) -> Pointwise:
    """`x` after the elements of `source` are combined with those at their positions; without `include_self`, with each
    other only. `write_to(base, value)` is the write of other values to these positions."""
    stride = tuple(graph.val.stride())
    dense = dense_order(x.size, stride) is not None
    if x.device.type == "cpu" or torch.are_deterministic_algorithms_enabled() or not dense or source.dtype != x.dtype:
        raise Unlowered
    kind = _kind(reduce, x.dtype)
    if kind.mode in ("max", "min"):
        x, source = stored(x), stored(source)
    elements = derived(source, kind.encode, kind.wide, 3)
    layout = Layout(x.device, kind.wide, tuple(x.size), stride)
    write = write_to(BufferView(Buffer("", layout), layout), elements)
    if write is None:
        raise Unlowered
    write = replace(write, mode=kind.mode)
    if not is_possible(BufferView(Buffer("", layout), layout), write):
        raise Unlowered
    if kind.wide != x.dtype and not copy_pays(x, write):
        raise Unlowered
    copy = store(graph, derived(x, kind.encode, kind.wide, 3), stride)
    if not include_self:
        graph.store_at_indices(copy, replace(write, mode=None, value=kind.neutral))
    graph.store_at_indices(copy, write)
    if reduce != "mean":
        result = derived(copy, kind.decode, x.dtype, 3)
    else:
        result = _divided(x, copy, _counts(graph, x, write, include_self))
    result.stride = stride
    return result


def _counts(graph: LoweringGraph, x: TensorValue, write: IndexWrite, include_self: bool) -> BufferView:
    """How many elements each sum has, int32; 0 for one of nothing."""
    first = int(include_self)
    start = Pointwise(x.device, torch.int32, tuple(x.size), lambda _: ops.constant(first, torch.int32))
    counts = store(graph, start)
    graph.store_at_indices(counts, replace(write, value=1))
    return counts


def _divided(x: TensorValue, sums: BufferView, counts: BufferView) -> Pointwise:
    """Means; those of integers are rounded down."""
    dtype = compute_dtype(x.dtype)

    def inner_fn(index: Any) -> Any:
        count = ops.maximum(counts.load(index), ops.constant(1, torch.int32))
        divide = ops.div if dtype.is_floating_point else ops.floordiv
        return divide(sums.load(index), ops.to_dtype(count, dtype))

    return Pointwise(x.device, x.dtype, tuple(x.size), inner_fn, 2, 3)


@lowering("scatter_reduce")
def scatter_reduce(
    graph: LoweringGraph,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorValue:
    """For each element of `index`, the element of `source` is combined with that position along one dimension."""
    return _reduced(graph, x, source, reduce, include_self, lambda base, value: write_at(base, dim, index, value))


@lowering("index_reduce")
def index_reduce(
    graph: LoweringGraph,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorValue:
    """Slices of `source` are combined with those at the positions `index` along one dimension."""
    if len(source.size) != len(x.size):
        raise Unlowered
    if x.device.type == "cpu":
        return _mean_of_rows(graph, x, dim, index, source, reduce, include_self)
    return _reduced(graph, x, source, reduce, include_self, lambda base, value: write_along(base, dim, index, value))


def _mean_of_rows(
    graph: LoweringGraph,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    reduce: str,
    include_self: bool,
) -> Pointwise:
    """`index_reduce` on the CPU: sums of rows in a copy of `x`, divided by how many each position has."""
    stride, dim = tuple(graph.val.stride()), dim % max(1, len(x.size))
    dense = dense_order(x.size, stride) is not None
    if reduce != "mean" or not dense or x.dtype not in _WIDE or source.dtype != x.dtype:
        raise Unlowered
    index = index.realize(graph)
    layout = Layout(x.device, x.dtype, tuple(x.size), stride)
    place = Layout.contiguous(x.device, torch.int32, tuple(x.size[dim : dim + 1]))
    base, ends = (BufferView(Buffer("", each), each) for each in (layout, place))
    write, number = write_along(base, dim, index, source), write_along(ends, 0, index, 1)
    if write is None or number is None:
        raise Unlowered
    write, number = replace(write, mode="add"), replace(number, mode="add")
    if not is_possible(base, write) or not is_possible(ends, number) or not adds_rows(base, write):
        raise Unlowered
    sums, first = store(graph, x, stride), int(include_self)
    if not include_self:
        graph.store_at_indices(sums, replace(write, mode=None, value=0))
    graph.store_at_indices(sums, write)
    counts = store(graph, Pointwise(x.device, torch.int32, place.size, lambda _: ops.constant(first, torch.int32)))
    graph.store_at_indices(counts, number)
    dtype = compute_dtype(x.dtype)

    def inner_fn(at: Any) -> Any:
        count = ops.maximum(counts.load([at[dim]]), ops.constant(1, torch.int32))
        divide = ops.div if dtype.is_floating_point else ops.floordiv
        return divide(sums.load(at), ops.to_dtype(count, dtype))

    result = Pointwise(x.device, x.dtype, tuple(x.size), inner_fn, 2, 3)
    result.stride = stride
    return result
