"""Operators that replace elements at positions given by index tensors, or add to them, as loops over those elements:
`index_put`, `index_copy`, `index_fill`, `scatter`, `index_add`, `scatter_add`, and the gradient of `embedding`
if `segments.py` does not sort it. They write to the memory of an input (see `in_place.py`) or of a copy.

Where two positions are equal, either value may remain, and sums are rounded in any order. ATen's kernels for GPUs do
the same, except those of `index_put` that accumulates and of the gradient of `embedding`: they sort the positions,
which takes longer than all the additions. Under `torch.use_deterministic_algorithms` the operators are calls of ATen.

On the CPU these are loops, in the order of the indices as in ATen: sums of rows (`adds_rows`), and of elements where
threads can share the work (`adds_in_parts`); and rows that replace those of a copy. Others are calls of ATen.

Sums in half precision are computed in a float32 copy of the tensor, which is then rounded once; ATen does that where it
sorts, and otherwise rounds each addition. Of a large table of zeros only the rows with several additions are summed in
the copy (`row_sums.py`). Such sums written to an input are calls of ATen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..ir.buffer import Buffer, Layout
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype, dense_order, store
from ..ir.size import hint, known
from ..ir.symbolic import Index
from .common import derived, overflows
from .index_write import TENSOR, IndexWrite, Value
from .indexing import broadcast
from .registry import LoweringGraph, Unlowered, lowering
from .row_sums import are_few, sums_of_few

aten = torch.ops.aten
_ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)
_HALF = (torch.float16, torch.bfloat16)
_IN_KERNELS = (*_ATOMIC, *_HALF, torch.bool, torch.uint8, torch.int8, torch.int16)
# The float32 copy in which a sum of half precision is computed is written, updated, and read. For more than 8 elements
# per element that is added this takes longer than ATen's sort, if the copy is not small; and up to there, the copy for
# the gradient of an embedding has at most 32 bytes per element of the activations, about what one transformer layer
# keeps for the backward pass and has freed by then, so that it does not increase the peak of the memory in use.
MAX_ELEMENTS_PER_ADDED, SMALL_COPY = 8, 64 << 20  # the copy's limit in bytes
MIN_ROW = 8  # elements of a row that are added at once on the CPU, at least
_NUMBER = (bool, int, float)


def index_write(base: BufferView, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> IndexWrite | None:
    """The write that an operator of the ATen graph does to its first argument, in the memory `base`; None if loops
    cannot do it. `args` are the arguments after the first."""
    write = _any_write(base, target, args, kwargs)
    if write is None or base.layout.device.type == "cpu" and write.mode is None:  # a wrong index must not write
        return None
    return None if write.mode and base.dtype not in _ATOMIC else write


def _any_write(base: BufferView, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> IndexWrite | None:
    """As `index_write`, but also sums in half precision, and on the CPU rows that replace others."""
    on_cpu = base.layout.device.type == "cpu"
    if not on_cpu and torch.are_deterministic_algorithms_enabled() or kwargs:
        return None
    make = _WRITES.get(target)
    write = make(base, *args) if make is not None else None
    if write is None or not is_possible(base, write):
        return None
    if on_cpu and write.mode is None:
        return write if base.dtype in _IN_KERNELS and _has_rows(base, write) else None
    return None if on_cpu and not (adds_rows(base, write) or adds_in_parts(base, write)) else write


def adds_rows(base: BufferView, write: IndexWrite) -> bool:
    """Whether a write adds whole rows of memory."""
    return write.mode == "add" and base.dtype in _ATOMIC and _has_rows(base, write)


def _has_rows(base: BufferView, write: IndexWrite) -> bool:
    """Whether a write is of whole rows of memory: the position does not vary along them."""
    numbers, row = range(1, len(write.size) + 1), write.order(base)[-1]
    strides = {k: s for k, s in zip(write.rest(numbers), base.layout.stride) if k != 0}
    if not known(strides.get(row + 1, 0), "==", 1) or hint(write.size[row]) < MIN_ROW:
        return False
    along = [k == row + 1 for k in write.at(numbers)]  # the dimensions of the indices that follow the row
    return not any(
        follows and not (isinstance(x, BufferView) and known(stride, "==", 0))
        for x in write.indices.values()
        for follows, stride in zip(along[::-1], (x.layout.stride if isinstance(x, BufferView) else x.size)[::-1])
    )


def adds_in_parts(base: BufferView, write: IndexWrite) -> bool:
    """Whether a write adds elements such that the outermost loop, which threads share, goes over parts of memory that
    are apart; or if there is one loop only, which ATen does not divide among threads either."""
    if write.mode != "add" or base.dtype not in _ATOMIC:
        return False
    loops = [k + 1 for k in write.order(base) if hint(write.size[k]) > 1]
    return len(loops) <= 1 or loops[0] in write.rest(range(1, len(write.size) + 1))


@lowering("index_put", "index_copy", "index_fill", "index_add", "scatter", "scatter_add")
def _to_copy(graph: LoweringGraph, x: TensorValue, *args: Any, **kwargs: Any) -> TensorValue:
    """`x` with elements replaced: a copy that is then written to."""
    stride = tuple(graph.val.stride())
    if x.dtype != graph.val.dtype or dense_order(x.size, stride) is None:
        raise Unlowered
    layout = Layout(x.device, x.dtype, tuple(x.size), stride)
    write = _any_write(BufferView(Buffer("", layout), layout), graph.node.target, args, kwargs)
    if write is None:
        raise Unlowered
    return _written_copy(graph, x, stride, write)


def table_of_sums(graph: LoweringGraph, write: IndexWrite) -> TensorValue:
    """A tensor like the result of the current node, with the sums of what `write` adds to zeros. Unlowered for
    deterministic algorithms on a GPU, and where loops cannot do it."""
    layout = Layout.contiguous(graph.val.device, graph.val.dtype, tuple(graph.val.shape))
    base, on_cpu = BufferView(Buffer("", layout), layout), layout.device.type == "cpu"
    if not on_cpu and torch.are_deterministic_algorithms_enabled():
        raise Unlowered
    if not is_possible(base, write) or on_cpu and (write.ignored is not None or not adds_rows(base, write)):
        raise Unlowered
    dtype = compute_dtype(layout.dtype)
    zeros = Pointwise(layout.device, layout.dtype, layout.size, lambda _: ops.constant(0, dtype))
    return _written_copy(graph, zeros, tuple(graph.val.stride()), write)


def _written_copy(graph: LoweringGraph, x: TensorValue, stride: tuple[int, ...], write: IndexWrite) -> TensorValue:
    """`x` after `write`. Unlowered for sums in half precision whose float32 copy would not pay."""
    rounded = write.mode is not None and x.dtype in _HALF
    if rounded and not copy_pays(x, write):
        raise Unlowered
    if rounded and are_few(x, stride, write):
        return sums_of_few(graph, write, Layout(x.device, x.dtype, tuple(x.size), stride))
    copy = store(graph, derived(x, lambda element: element, torch.float32, 0) if rounded else x, stride)
    graph.store_at_indices(copy, write)
    if not rounded:
        return copy
    result = derived(copy, lambda element: element, x.dtype)
    result.stride = stride
    return result


def copy_pays(x: TensorValue, write: IndexWrite) -> bool:
    """Whether a sum is faster in a float32 copy of `x` than by ATen."""
    elements, added = (math.prod(map(hint, size)) for size in (x.size, write.size))
    return elements <= MAX_ELEMENTS_PER_ADDED * added or elements * torch.float32.itemsize <= SMALL_COPY


def is_possible(base: BufferView, write: IndexWrite) -> bool:
    """Whether loops can do a write. An indexed dimension of size 1 is left to ATen, because the position written would
    not depend on the index and so not on whether it is within bounds."""
    value, layout = write.value, base.layout
    if value.dtype != base.dtype if isinstance(value, TENSOR) else overflows(value, base.dtype):
        return False
    if write.mode and base.dtype not in _ATOMIC + _HALF:
        return False
    if any(x.device != base.device for x in write.tensors()):
        return False
    if any(i.dtype not in (torch.int64, torch.int32) for i in write.indices.values()):
        return False
    if any(not known(n, ">", 0) for n in (*write.size, *layout.size)):
        return False
    if any(not known(layout.size[d], ">", 1) for d in write.indices):
        return False
    return not any(known(n, ">", 1) and not known(s, ">", 0) for n, s in zip(layout.size, layout.stride))


def _index_put(
    base: BufferView, indices: Sequence[TensorValue | None], value: TensorValue, accumulate: bool = False
) -> IndexWrite | None:
    """x[indices] = value; each index is an integer tensor, or None for a whole dimension."""
    used = {d: i for d, i in enumerate(indices) if i is not None}
    if not used or any(i.dtype in (torch.bool, torch.uint8) for i in used.values()):
        return None
    shape = broadcast([tuple(i.size) for i in used.values()])
    dims = sorted(used)
    # The dimensions of the indices replace the indexed ones if those are adjacent; otherwise they come first.
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    whole = [n for d, n in enumerate(base.size) if d not in used]
    size = (*whole[:first], *shape, *whole[first:])

    def rest(index: Sequence[Index]) -> list[Index]:
        left = [*index[:first], *index[first + len(shape) :]]
        return [0 if d in used else left.pop(0) for d in range(len(base.size))]

    def at(index: Sequence[Index]) -> Sequence[Index]:
        return index[first : first + len(shape)]

    return IndexWrite(size, value, used, rest, at, len(shape), True, "add" if accumulate else None)


def write_along(
    base: BufferView, dim: int, index: TensorValue, value: Value, wraps: bool = False
) -> IndexWrite | None:
    """A write to the positions `index` (one-dimensional) of one dimension."""
    if not base.size or len(index.size) != 1 or index.dtype != torch.int64:
        return None
    dim %= len(base.size)
    size = (*base.size[:dim], index.size[0], *base.size[dim + 1 :])

    def rest(at: Sequence[Index]) -> list[Index]:
        return [0 if d == dim else i for d, i in enumerate(at)]

    return IndexWrite(size, value, {dim: index}, rest, lambda at: [at[dim]], 1, wraps)


def _index_copy(base: BufferView, dim: int, index: TensorValue, value: TensorValue) -> IndexWrite | None:
    return write_along(base, dim, index, value) if len(value.size) == len(base.size) else None


def _index_add(base: BufferView, dim: int, index: TensorValue, value: TensorValue) -> IndexWrite | None:
    write = _index_copy(base, dim, index, value)
    return None if write is None else replace(write, mode="add")


def _index_fill(base: BufferView, dim: int, index: TensorValue, value: Value) -> IndexWrite | None:
    return write_along(base, dim, index, value, True) if isinstance(value, TENSOR + _NUMBER) else None


def write_at(base: BufferView, dim: int, index: TensorValue, value: Value) -> IndexWrite | None:
    """For each element of `index`, a write to that position along one dimension. A larger `value` is left to ATen: the
    loops would not compute all of it, and miss an error in what they do not."""
    if not base.size or len(index.size) != len(base.size) or index.dtype != torch.int64:
        return None
    if not isinstance(value, TENSOR + _NUMBER):
        return None
    if isinstance(value, TENSOR) and tuple(value.size) != tuple(index.size):
        return None
    dim %= len(base.size)

    def rest(at: Sequence[Index]) -> list[Index]:
        return [0 if d == dim else i for d, i in enumerate(at)]

    return IndexWrite(tuple(index.size), value, {dim: index}, rest, lambda at: at, len(index.size), False)


def _scatter_add(base: BufferView, dim: int, index: TensorValue, value: TensorValue) -> IndexWrite | None:
    write = write_at(base, dim, index, value)
    return None if write is None else replace(write, mode="add")


def _scatter_sum(
    base: BufferView, dim: int, index: TensorValue, value: TensorValue, reduce: str
) -> IndexWrite | None:
    return _scatter_add(base, dim, index, value) if reduce == "sum" else None


_WRITES: dict[Any, Callable[..., IndexWrite | None]] = {
    aten.index_put.default: _index_put,
    aten.index_copy.default: _index_copy,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill,
    aten.index_add.default: _index_add,
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: _scatter_sum,
    aten.scatter.src: write_at,
    aten.scatter.value: write_at,
}
