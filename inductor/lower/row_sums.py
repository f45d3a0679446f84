"""Sums of rows at indices into a large tensor of zeros, in half precision, on a GPU: the gradient of a large embedding.

A float32 copy of the whole tensor would be filled with zeros, added to and rounded, although most of its rows get one
row, or none. So the indices of each row are counted first. A row that is the only one of its index is written to the
result at once; the others are added to the copy, of which only their sums are set to zero before and rounded after.
The rest of the copy is never touched. With 16,384 rows of 1,024 elements in bfloat16 and 32,000 sums, these kernels
take 60 us on an H200, and those for the whole copy 131 us.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..ir.body import LoopBody, trace
from ..ir.buffer import Buffer, Layout, contiguous_strides
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, store
from ..ir.symbolic import Index
from .index_write import IndexWrite
from .registry import LoweringGraph

# Counting takes two more kernels, and sums that get several rows are set to zero by each of them. So there must be much
# to save: bytes of the float32 copy and of a row, at least; and no more rows than sums.
LEAST_COPY, LEAST_ROW = 32 << 20, 256


def are_few(x: TensorValue, stride: Sequence[int], write: IndexWrite) -> bool:
    """Whether `write` adds rows to a tensor `x` of zeros such that summing a part of them in float32 pays. The result
    has this `stride`."""
    size, rank = (*write.size, *x.size), write.rank
    if not all(type(n) is int for n in size) or tuple(stride) != tuple(contiguous_strides(x.size)):
        return False
    numbers = list(range(1, len(write.size) + 1))
    rows = write.mode == "add" and set(write.indices) == {0} and list(write.at(numbers)) == numbers[:rank]
    if not rows or list(write.rest(numbers)) != [0, *numbers[rank:]]:
        return False
    places, columns = math.prod(write.size[:rank]), math.prod(write.size[rank:])
    wide = columns * x.dtype.itemsize >= LEAST_ROW and x.size[0] * columns * torch.float32.itemsize >= LEAST_COPY
    return wide and places <= x.size[0] and _is_zero(x)


def _is_zero(x: TensorValue) -> bool:
    """Whether `x` is computed, and is 0 everywhere."""
    if not isinstance(x, Pointwise) or x.memory is not None or x.view is not None:
        return False
    body = trace(list(x.size), (), lambda loop, _: ops.store("", 0, x.load(loop)))
    kinds = {op.name for op in body.ops}
    return kinds <= {"constant", "to_dtype", "store"} and not any(o.args[0] for o in body.ops if o.name == "constant")


def sums_of_few(graph: LoweringGraph, write: IndexWrite, layout: Layout) -> BufferView:
    """A tensor of this `layout`, of half precision, with the sums of the rows that `write` adds to zeros."""
    write = replace(write, indices={d: x.realize(graph) for d, x in write.indices.items()})
    counts = _counts(graph, write, layout)
    copied = replace(layout, dtype=torch.float32)
    base = BufferView(Buffer("", copied), copied)

    def zeroed(name: str) -> LoopBody:
        def point(place: Sequence[Index], _: Callable[[], Any], written: Any) -> None:
            zero = ops.constant(0.0, torch.float32)
            ops.store(name, copied.index(place), zero, None, _both(written, _several(counts, place)))

        return write.loops(base, point)

    copy = graph.add_computed(copied, zeroed)

    def added(name: str) -> LoopBody:
        def point(place: Sequence[Index], value: Callable[[], Any], written: Any) -> None:
            several, element = _several(counts, place), value()
            ops.store(copy.name, copied.index(place), element, "add", _both(written, several))
            alone = _both(written, ops.logical_not(several))
            ops.store(name, layout.index(place), ops.to_dtype(element, layout.dtype), None, alone)

        return write.loops(base, point)

    result = BufferView(graph.add_computed(layout, added), layout)
    graph.add_loops(result, trace(layout.size, (), _rounded(result, BufferView(copy, copied), counts)))
    return result


def _counts(graph: LoweringGraph, write: IndexWrite, layout: Layout) -> BufferView:
    """How many rows each sum has, int32."""
    none = Pointwise(layout.device, torch.int32, layout.size[:1], lambda _: ops.constant(0, torch.int32))
    counts = store(graph, none)
    size = write.size[: write.rank]
    graph.store_at_indices(counts, replace(write, size=size, value=1, rest=lambda at: [0], at=lambda at: at))
    return counts


def _several(counts: BufferView, place: Sequence[Index]) -> Any:
    """Whether the sum that an element at `place` belongs to has several rows."""
    return ops.gt(counts.load(tuple(place[:1])), ops.constant(1, torch.int32))


def _both(a: Any, b: Any) -> Any:
    return b if a is None else ops.logical_and(a, b)


def _rounded(result: BufferView, copy: BufferView, counts: BufferView) -> Callable[..., None]:
    """The loop body that writes to `result` the sums of several rows, rounded, and zeros for those of none."""

    def fn(index: tuple[Index, ...], _: tuple[Index, ...]) -> None:
        one = ops.constant(1, torch.int32)
        count = counts.load(index[:1])
        element = ops.masked(ops.gt(count, one), lambda: copy.load(index), 0.0)
        rounded = ops.to_dtype(element, result.dtype)
        ops.store(result.buffer.name, result.layout.index(index), rounded, None, ops.ne(count, one))

    return fn
