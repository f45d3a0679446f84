"""Sums of rows at indices: the gradient of a table from those of the rows that were looked up.

On the CPU the rows are added in their order. On a GPU each row is added to the table by atomic additions
(`index_writes.py`), in an order that differs from run to run. Under
`torch.use_deterministic_algorithms` the indices are sorted instead, and for each row of the table a program sums what
belongs to it. That writes the table once, without a copy of it in float32, but with the sort takes longer: 150 us for
16,384 rows of 1,024 elements in bfloat16 on an H200, where the kernels of `row_sums.py` take 60.

Where many indices are equal, such as that of a frequent word, one program would sum for long while all others are done.
Chunks of the sorted indices, all of which are equal, are therefore summed before, and taken as a whole.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir.body import LoopBody, trace
from ..ir.buffer import Layout, contiguous_strides
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype, store
from ..ir.symbolic import Index
from .common import shared, stored
from .index_write import IndexWrite
from .index_writes import table_of_sums
from .indexing import from_start
from .registry import LoweringGraph, Unlowered, lowering
from .searching import position

LEAST_CHUNK = 32


@lowering("embedding_dense_backward")
def embedding_gradient(
    graph: LoweringGraph,
    gradient: TensorValue,
    indices: TensorValue,
    rows: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> TensorValue:
    """A table of `rows` sums: adds each row of `gradient` to the row of its index, except if that is `padding_idx`."""
    if scale_grad_by_freq:
        raise Unlowered
    return sums_of_rows(graph, gradient, indices, padding_idx)


def sums_of_rows(graph: LoweringGraph, rows: TensorValue, indices: TensorValue, ignored: int) -> TensorValue:
    """A tensor like the result of the current node, with the sums of the rows of each index; none of `ignored`.
    Unlowered where loops do not do it."""
    if rows.dtype != graph.val.dtype:
        raise Unlowered
    on_cpu = graph.val.device.type == "cpu"  # where the rows are added in their order
    if not on_cpu and torch.are_deterministic_algorithms_enabled() and _is_possible(graph, rows, indices):
        return _Segments(graph, shared(graph, rows), indices, ignored).sums()
    rank = len(indices.size)
    if on_cpu:
        rows = rows if ignored < 0 else _without(rows, indices, ignored)
    write = IndexWrite(
        tuple(rows.size), rows, {0: indices}, lambda at: [0, at[-1]], lambda at: at[:rank], rank, wraps=False,
        mode="add", ignored=None if on_cpu else ignored,
    )  # fmt: skip
    return table_of_sums(graph, write)


def _without(rows: TensorValue, indices: TensorValue, ignored: int) -> TensorValue:
    """The rows, with zeros for those whose index is `ignored`."""
    rank, source = len(indices.size), stored(indices)

    def kept(index: tuple[Index, ...]) -> Any:
        at = ops.to_dtype(source.load(index[:rank]), torch.int64)
        nothing = ops.constant(0.0, compute_dtype(rows.dtype))
        return ops.where(ops.ne(at, ops.constant(ignored, torch.int64)), rows.load(index), nothing)

    return Pointwise(rows.device, rows.dtype, tuple(rows.size), kept, rows.reads + 1, rows.work + 2)


def _is_possible(graph: LoweringGraph, rows: TensorValue, indices: TensorValue) -> bool:
    sizes = (*rows.size, *indices.size, *graph.val.shape)
    if not all(type(n) is int and n > 0 for n in sizes) or math.prod(indices.size) < 2 or graph.val.shape[0] < 2:
        return False
    if tuple(graph.val.stride()) != tuple(contiguous_strides(graph.val.shape)):
        return False
    floating = rows.dtype.is_floating_point and rows.dtype.itemsize > 1
    return floating and indices.dtype in (torch.int64, torch.int32) and rows.device == indices.device


class _Segments:
    """The sums of `rows`, (*indices.size, columns), by index. `sorted` holds for each place in order its index times
    the number of places, plus the place; and `starts` for each index the number of those before."""

    def __init__(self, graph: LoweringGraph, rows: TensorValue, indices: TensorValue, ignored: int) -> None:
        self.graph, self.rows, self.indices, self.ignored = graph, rows, indices, ignored
        self.places = math.prod(indices.size)
        self.count, self.columns = graph.val.shape
        self.kind = torch.int32 if (self.count + 1) * self.places < 2**31 else torch.int64
        self.dtype = compute_dtype(rows.dtype)
        self.chunk = max(LEAST_CHUNK, 1 << (self.places.bit_length() // 2) >> 2)
        layout = Layout.contiguous(rows.device, self.kind, (self.places,))
        keys = store(graph, self._keys()).buffer
        args = (BufferView(keys, layout), -1, False)
        self.sorted = graph.add_call(torch.ops.aten.sort.default, args, 0, layout)
        self.starts = store(graph, self._starts())

    def _number(self, value: int) -> Any:
        return ops.constant(value, self.kind)

    def _coordinates(self, place: Index) -> list[Index]:
        """The index in `indices` of a place."""
        out: list[Index] = []
        for n in reversed(self.indices.size[1:]):
            out.insert(0, place % n)
            place = place // n
        return [place, *out] if self.indices.size else []

    def _keys(self) -> Pointwise:
        """Each index before its place. Ignored ones come last."""

        def inner_fn(index: tuple[Index, ...]) -> Any:
            found = ops.to_dtype(self.indices.load(self._coordinates(index[0])), torch.int64)
            kept = ops.ne(found, ops.constant(self.ignored, torch.int64))
            at = from_start(ops.where(kept, found, ops.constant(0, torch.int64)), self.count)
            ops.indirect(at, self.count)
            row = ops.to_dtype(ops.checked(at, at, self.count), self.kind)
            row = ops.where(kept, row, self._number(self.count))
            return ops.add(ops.mul(row, self._number(self.places)), ops.index_expr(index[0], self.kind))

        return Pointwise(self.rows.device, self.kind, (self.places,), inner_fn, self.indices.reads, 8)

    def _starts(self) -> Pointwise:
        def inner_fn(index: tuple[Index, ...]) -> Any:
            least = ops.mul(ops.index_expr(index[0], self.kind), self._number(self.places))
            return position(self.sorted, (), least, right=False)

        steps = self.places.bit_length()
        return Pointwise(self.rows.device, torch.int32, (self.count + 1,), inner_fn, steps, 4 * steps)

    def _element(self, at: Index, column: Index) -> Any:
        """The element of the row that is number `at` in order."""
        place = ops.fmod(self.sorted.load([at]), self._number(self.places))
        own = self._coordinates(ops.indirect(place, self.places, True))
        return self.rows.load([*own, column])

    def _reduced(self, size: tuple[int, ...], dtype: torch.dtype, fn: Any) -> BufferView:
        """A new buffer with `fn(index, point)` for each index, which reduces over points, as many as places."""
        layout = Layout.contiguous(self.rows.device, dtype, size)

        def body_of(name: str) -> LoopBody:
            def run(index: tuple[Index, ...], inner: tuple[Index, ...]) -> None:
                ops.store(name, layout.index(index), ops.to_dtype(fn(index, inner[0]), dtype))

            return trace(list(size), [self.places], run)

        return BufferView(self.graph.add_computed(layout, body_of), layout)

    def _of_chunks(self) -> BufferView:
        """The sums of chunks, where all of their indices are equal."""

        def fn(index: tuple[Index, ...], at: Index) -> Any:
            chunk, column = index
            row = lambda place: ops.truncdiv(self.sorted.load([place]), self._number(self.places))  # noqa: E731
            first, last = row(chunk * self.chunk), row(chunk * self.chunk + (self.chunk - 1))
            whole = ops.logical_and(ops.eq(first, last), ops.lt(first, self._number(self.count)))
            begin = ops.index_expr(chunk * self.chunk, torch.int32)
            end = ops.where(whole, ops.index_expr((chunk + 1) * self.chunk, torch.int32), begin)
            return ops.reduction(self.dtype, "sum", self._element(at, column), (begin, end))

        return self._reduced((self.places // self.chunk, self.columns), self.dtype, fn)

    def sums(self) -> BufferView:
        """The sums of all indices."""
        if self.places >= 2 * self.chunk:
            chunks = self._of_chunks()
            return self._reduced(
                tuple(self.graph.val.shape), self.rows.dtype, lambda index, at: self._in_parts(index, at, chunks)
            )

        def fn(index: tuple[Index, ...], at: Index) -> Any:
            bounds = self.starts.load([index[0]]), self.starts.load([index[0] + 1])
            return ops.reduction(self.dtype, "sum", self._element(at, index[1]), bounds)

        return self._reduced(tuple(self.graph.val.shape), self.rows.dtype, fn)

    def _in_parts(self, index: tuple[Index, ...], at: Index, chunks: BufferView) -> Any:
        """The sum of a segment: point `at` is a row ahead of its first whole chunk, a chunk, or a row behind them."""
        number = lambda value: ops.constant(value, torch.int32)  # noqa: E731
        shift = number(self.chunk.bit_length() - 1)
        begin, end = self.starts.load([index[0]]), self.starts.load([index[0] + 1])
        first = ops.bitwise_right_shift(ops.add(begin, number(self.chunk - 1)), shift)
        behind = ops.bitwise_right_shift(end, shift)
        count = ops.maximum(ops.sub(behind, first), number(0))
        split = ops.gt(count, number(0))
        first_row = ops.sub(ops.bitwise_left_shift(first, shift), begin)
        head = ops.where(split, first_row, ops.sub(end, begin))
        tail = ops.where(split, ops.sub(end, ops.bitwise_left_shift(behind, shift)), number(0))
        points = ops.add(ops.add(head, count), tail)
        point = ops.index_expr(at, torch.int32)
        after = ops.sub(point, head)  # negative for rows ahead
        is_chunk = ops.logical_and(ops.ge(after, number(0)), ops.lt(after, count))
        behind_row = ops.add(ops.bitwise_left_shift(behind, shift), ops.sub(after, count))
        place = ops.where(ops.lt(after, number(0)), ops.add(begin, point), behind_row)

        def single() -> Any:
            return self._element(ops.indirect(place, self.places, True), index[1])

        def whole() -> Any:
            own = ops.indirect(ops.add(first, after), self.places // self.chunk, True)
            return chunks.load([own, index[1]])

        inside = ops.lt(point, points)
        one = ops.masked(ops.logical_and(inside, ops.logical_not(is_chunk)), single, 0)
        many = ops.masked(is_chunk, whole, 0)
        return ops.reduction(self.dtype, "sum", ops.add(one, many), (number(0), points))
