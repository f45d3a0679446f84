"""Lowerings of sort, topk, kthvalue and median of short rows, on GPUs: a program sorts whole rows in registers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from ..fx_utils.arguments import node_at
from ..ir.body import LoopBody, trace
from ..ir.buffer import Layout, contiguous_strides
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype, dense_order
from ..ir.size import hint
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import Reduce, derived, drop, stored
from .registry import LoweringGraph, Unlowered, lowering
from .scans import FLOATS, INTEGERS

# Length of the longest rows that are sorted in registers, by the size of an element in bytes, if they are contiguous.
# ATen, whose time grows less with the length, is faster for longer ones: on an H200, 8192 rows of 4096 float32 took it
# 1.05 ms, and these kernels 1.55; rows of 1024 took 300 and 170 us.
LONGEST_ROW = {1: 4096, 2: 4096, 4: 1024, 8: 256}
# The same for rows across memory, which are not loaded in the order that a fast sort needs, and for operators that want
# less than all of a row, which ATen finds without sorting it.
LONGEST_OTHERWISE = {1: 1024, 2: 1024, 4: 512, 8: 256}
# The same where no more than so many elements of a row are wanted, in dtypes of less than 64 bits: these are found in
# fewer steps than all are sorted.
LONGEST_FOR_FEW, MOST_OF_LONG = 4096, 64
LEAST = {torch.bool: False} | {dtype: torch.iinfo(dtype).min for dtype in INTEGERS}  # at most every element
_aten = torch.ops.aten
# Operators whose result has the elements of their first argument, converted if it has another dtype.
_SAME_ELEMENTS = {
    _aten._to_copy.default, _aten.view.default, _aten._unsafe_view.default, _aten.squeeze.dim, _aten.unsqueeze.default,
    _aten.clone.default, _aten.slice.Tensor, _aten.select.int, _aten.permute.default, _aten.transpose.int,
}  # fmt: skip
Results = tuple[TensorValue, TensorValue]
InSortedRow = Callable[[tuple[Index, ...]], Any]


def _element(graph: LoweringGraph, x: TensorValue) -> torch.dtype:
    """The dtype that holds all elements of `x`, the first argument of the current node: of bfloat16 and float16 that
    were converted to float32, that which they had. Their keys have 16 bits."""
    node, dtype = node_at(graph.node), x.dtype
    while dtype == torch.float32 and node.target in _SAME_ELEMENTS and isinstance(node.args[0], fx.Node):
        node = node_at(node)
        before = node.meta["val"].dtype
        if before.is_floating_point and before.itemsize == 2:
            return before
        if before != dtype:
            break
    return dtype


def _refuse(
    x: TensorValue, dim: int, element: torch.dtype, count: int = 0, longest_row: dict[int, int] = LONGEST_OTHERWISE
) -> None:
    """Unlowered unless rows of `x` along `dim`, of elements of that dtype, can be sorted in registers, or the first
    `count` of them found."""
    if x.device.type == "cpu" or x.dtype not in (*FLOATS, *INTEGERS, torch.bool):
        raise Unlowered
    length = x.size[dim] if x.size else 1
    longest = longest_row[element.itemsize]
    if 0 < count <= MOST_OF_LONG and x.dtype.itemsize < 8:
        longest = LONGEST_FOR_FEW
    if type(length) is not int or not 0 < length <= longest or 0 in map(hint, x.size):
        raise Unlowered


def _unmoved(x: TensorValue, dtype: torch.dtype, positions: AnyTensor) -> Results:
    """The results where rows have one element."""
    zero = Pointwise(
        x.device, torch.int64, tuple(x.size), lambda index: ops.constant(0, torch.int64),
        stride=tuple(positions.stride()),
    )  # fmt: skip
    return derived(x, lambda v: v, dtype, 0), zero


def _in_order(x: TensorValue, what: str, descending: bool, element: torch.dtype, count: int = 0) -> InSortedRow:
    """The element of sorted `x`, or its position, at a full index; with a `count` only at the first points of a row.
    `element`: a dtype that holds all elements."""
    source = stored(x)
    dtype = compute_dtype(x.dtype) if what == "values" else torch.int64

    def load(index: tuple[Index, ...]) -> Any:
        return source.load(index) if element == x.dtype else ops.as_stored(source.load(index), element)

    return lambda index: ops.sort(dtype, what, load(index), descending, element, count)


def _first(
    graph: LoweringGraph, x: TensorValue, dim: int, what: str, descending: bool, element: torch.dtype, val: AnyTensor
) -> BufferView:
    """A new buffer like `val`: as many elements of each sorted row as `val` has along `dim`, or their positions."""
    size, count, stride = tuple(x.size), val.size(dim), tuple(val.stride())
    results = tuple(count if d == dim else n for d, n in enumerate(size))
    order = dense_order(results, stride)
    if order is None:
        order, stride = list(range(len(size))), contiguous_strides(results)
    layout = Layout(val.device, val.dtype, results, tuple(stride))
    few = count if type(count) is int and count < size[dim] else 0
    outer, found = [d for d in order if d != dim], _in_order(x, what, descending, element, few)

    def body_of(name: str) -> LoopBody:
        def run(index: tuple[Index, ...], row: tuple[Index, ...]) -> None:
            full: list[Index] = [0] * len(size)
            for d, i in zip([*outer, dim], (*index, *row)):
                full[d] = i
            value = ops.to_dtype(found(tuple(full)), val.dtype)
            where = None
            if count != size[dim]:
                where = ops.lt(ops.index_expr(row[0], torch.int64), ops.constant(count, torch.int64))
            ops.store(name, layout.index(full), value, None, where)

        return trace([size[d] for d in outer], [size[dim]], run)

    return BufferView(graph.add_computed(layout, body_of), layout)


def _both(graph: LoweringGraph, x: TensorValue, dim: int, descending: bool) -> Results:
    """The sorted elements and their positions, as many as the results of the current node have."""
    values, positions = graph.val
    dim = dim % len(x.size) if x.size else 0
    count = values.size(dim) if x.size else 0
    element, few = _element(graph, x), type(count) is int and bool(x.size) and count < x.size[dim]
    stride = node_at(graph.node).meta["val"].stride(dim) if x.size else 1
    whole = type(stride) is int and stride == 1 and not few
    _refuse(x, dim, element, count if few else 0, LONGEST_ROW if whole else LONGEST_OTHERWISE)
    if not x.size or x.size[dim] == 1:
        return _unmoved(x, values.dtype, positions)
    return (
        _first(graph, x, dim, "values", descending, element, values),
        _first(graph, x, dim, "positions", descending, element, positions),
    )


@lowering("sort")
def sort(
    graph: LoweringGraph, x: TensorValue, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Results:
    """The elements in order and their positions. Equal elements keep their order, also if that is not asked for."""
    return _both(graph, x, dim, descending)


@lowering("topk")
def topk(
    graph: LoweringGraph, x: TensorValue, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Results:
    """The `k` greatest or least elements and their positions, in order."""
    if type(k) is not int or k == 0:
        raise Unlowered
    return _both(graph, x, dim, largest)


def _at_rank(
    graph: LoweringGraph, x: TensorValue, dim: int, keepdim: bool, rank: Callable[[tuple[Index, ...]], Any]
) -> Results:
    """The element of each row whose rank in ascending order is `rank(index)`, and its position."""
    size = tuple(x.size)
    space = Reduce(size, (dim,))

    def chosen(what: str, least: float) -> BufferView:
        found = _in_order(x, what, False, x.dtype)
        dtype = x.dtype if what == "values" else torch.int64

        def fn(index: tuple[Index, ...]) -> Any:
            here = ops.eq(ops.index_expr(index[dim], torch.int64), rank(index))
            value = found(index)
            other = ops.constant(least, compute_dtype(dtype))
            return ops.where(here, value, other)

        return space(graph, x, "any" if dtype == torch.bool else "max", fn, dtype)

    pair = chosen("values", LEAST.get(x.dtype, -math.inf)), chosen("positions", -1)
    return pair if keepdim else (drop(pair[0], [dim]), drop(pair[1], [dim]))


@lowering("kthvalue")
def kthvalue(graph: LoweringGraph, x: TensorValue, k: int, dim: int = -1, keepdim: bool = False) -> Results:
    """The `k`-th least element, counted from 1, and its position."""
    dim = dim % len(x.size) if x.size else 0
    _refuse(x, dim, x.dtype)
    if type(k) is not int:
        raise Unlowered
    if not x.size or x.size[dim] == 1:
        return _of_one(graph, x, dim, keepdim)
    return _at_rank(graph, x, dim, keepdim, lambda index: ops.constant(k - 1, torch.int64))


def _of_one(graph: LoweringGraph, x: TensorValue, dim: int, keepdim: bool) -> Results:
    pair = _unmoved(x, x.dtype, graph.val[1])
    return pair if keepdim or not x.size else (drop(pair[0], [dim]), drop(pair[1], [dim]))


def _median(graph: LoweringGraph, x: TensorValue, dim: int, keepdim: bool, skip_nan: bool) -> Results:
    """The median of each row: of an even number of elements, the lesser of the two in the middle. A row with NaN gives
    NaN, unless `skip_nan`."""
    length = x.size[dim]
    if x.dtype not in FLOATS:
        return _at_rank(graph, x, dim, keepdim, lambda index: ops.constant((length - 1) // 2, torch.int64))
    source = stored(x)
    count = Reduce(tuple(x.size), (dim,))(
        graph, x, "sum", lambda index: ops.to_dtype(ops.isnan(source.load(index)), torch.int64), torch.int64
    )

    def rank(index: tuple[Index, ...]) -> Any:
        nans = count.load(tuple(0 if d == dim else i for d, i in enumerate(index)))
        end = ops.constant(length - 1, torch.int64)
        if skip_nan:
            below = ops.truncdiv(ops.sub(end, nans), ops.constant(2, torch.int64))
            return ops.where(ops.eq(nans, ops.constant(length, torch.int64)), ops.constant(0, torch.int64), below)
        first_nan = ops.sub(ops.constant(length, torch.int64), nans)
        middle = ops.constant((length - 1) // 2, torch.int64)
        return ops.where(ops.gt(nans, ops.constant(0, torch.int64)), first_nan, middle)

    return _at_rank(graph, x, dim, keepdim, rank)


def _medians(skip_nan: bool) -> Callable[..., Any]:
    def lower(graph: LoweringGraph, x: TensorValue, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:  # of all elements: one result, without a position
            if len(x.size) != 1:
                raise Unlowered
            _refuse(x, 0, x.dtype)
            if x.size[0] == 1:
                return drop(x, [0])
            return _median(graph, x, 0, False, skip_nan)[0]
        dim = dim % len(x.size) if x.size else 0
        _refuse(x, dim, x.dtype)
        if not x.size or x.size[dim] == 1:
            return _of_one(graph, x, dim, keepdim)
        return _median(graph, x, dim, keepdim, skip_nan)

    return lower


lowering("median")(_medians(False))
lowering("nanmedian")(_medians(True))
