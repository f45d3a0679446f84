"""Operators that replace elements at positions given by index tensors, or add to them, as loops over those elements:
`index_put`, `index_copy`, `index_fill`, `scatter`, `index_add`, `scatter_add`, and the gradient of `embedding`
if `segments.py` does not sort it. They write to the memory of an input (see `in_place.py`) or of a copy.

Where two positions are equal, either value may remain, and sums are rounded in any order. ATen's kernels for GPUs do
the same, except those of `index_put` that accumulates and of the gradient of `embedding`: they sort the positions,
which takes longer than all the additions. Under `torch.use_deterministic_algorithms` the operators are calls of ATen.

On the CPU, only sums are loops, in the order of the indices as in ATen: of rows (`adds_rows`), and of elements where
threads can share the work (`adds_in_parts`). Others are calls of ATen.

Sums in half precision are computed in a float32 copy of the tensor, which is then rounded once; ATen does that where it
sorts, and otherwise rounds each addition. Such sums written to an input are calls of ATen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..ir.body import LoopBody, trace
from ..ir.buffer import Buffer, Layout
from ..ir.handler import ops
from ..ir.nodes import Allocator, BufferView, Pointwise, TensorValue, compute_dtype, dense_order, store
from ..ir.size import AnySize, hint, known
from ..ir.symbolic import Index
from .common import derived, operand, overflows
from .indexing import broadcast, from_start
from .registry import LoweringGraph, Unlowered, lowering

aten = torch.ops.aten
Value = TensorValue | bool | int | float
_ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)
_HALF = (torch.float16, torch.bfloat16)
# The float32 copy in which a sum of half precision is computed is written, updated, and read. For more than 8 elements
# per element that is added this takes longer than ATen's sort, if the copy is not small; and up to there, the copy for
# the gradient of an embedding has at most 32 bytes per element of the activations, about what one transformer layer
# keeps for the backward pass and has freed by then, so that it does not increase the peak of the memory in use.
MAX_ELEMENTS_PER_ADDED, SMALL_COPY = 8, 64 << 20  # the copy's limit in bytes
MIN_ROW = 8  # elements of a row that are added at once on the CPU, at least
_TENSOR, _NUMBER = (Pointwise, BufferView), (bool, int, float)


@dataclass(frozen=True)
class IndexWrite:
    """A write of `value`, broadcast to `size`, to a tensor.

    Element i goes to the position `rest(i)`, except in the dimensions of `indices`. There the coordinate is the element
    of the index tensor at `at(i)`, which counts from the end of the dimension if it is negative and `wraps`. `rest`
    gives 0 in these dimensions and elements of its argument in the others; `at` gives `rank` elements of its argument.
    With a `mode`, as of `ops.store`, the elements are combined with what is there. Elements whose index is `ignored`
    are not written.
    """

    size: tuple[AnySize, ...]
    value: Value
    indices: Mapping[int, TensorValue]
    rest: Callable[[Sequence[Index]], list[Index]]
    at: Callable[[Sequence[Index]], Sequence[Index]]
    rank: int
    wraps: bool
    mode: str | None = None
    ignored: int | None = None

    def tensors(self) -> list[TensorValue]:
        """All tensors that the write reads."""
        return [*self.indices.values(), *([self.value] if isinstance(self.value, _TENSOR) else [])]

    def realized(self, graph: Allocator, buffer: str) -> IndexWrite:
        """The same write, of values and indices that are in other memory than `buffer`."""

        def apart(x: TensorValue) -> BufferView:
            memory = x.realize(graph)
            return store(graph, memory) if memory.buffer.name == buffer else memory

        value = apart(self.value) if isinstance(self.value, _TENSOR) else self.value
        indices = {d: apart(x) for d, x in self.indices.items()}
        return replace(self, value=value, indices=indices)

    def body(self, base: BufferView) -> LoopBody:
        """The loops that write to `base`; the last one is that along which most elements are adjacent in memory."""
        layout, dtype = base.layout, compute_dtype(base.dtype)
        value = operand(self.value, dtype, len(self.size))
        positions = {d: operand(x, torch.int64, self.rank) for d, x in self.indices.items()}

        def fn(loop: tuple[Index, ...], _: tuple[Index, ...]) -> None:
            index: list[Index] = [0] * len(order)
            for d, i in zip(order, loop):
                index[d] = i
            place, written = self.rest(index), None
            for d, load in positions.items():
                at = load(tuple(self.at(index)))
                if self.ignored is not None:
                    written = ops.ne(at, ops.constant(self.ignored, torch.int64))
                    at = ops.where(written, at, ops.constant(0, torch.int64))
                place[d] = ops.indirect(at if self.wraps else from_start(at, layout.size[d]), layout.size[d])
            element = ops.to_dtype(value(tuple(index)), base.dtype)
            ops.store(base.buffer.name, layout.index(place), element, self.mode, written)

        order = self.order(base)
        return trace([self.size[d] for d in order], (), fn)

    def order(self, base: BufferView) -> list[int]:
        """The dimensions of `size` by descending distance of neighbours in the memory of `base`; those that only
        select positions are where the indexed dimensions are."""
        indexed = max(hint(base.layout.stride[d]) for d in self.indices)
        numbers = range(1, len(self.size) + 1)
        strides = {k: hint(s) for k, s in zip(self.rest(numbers), base.layout.stride) if k != 0}
        return sorted(range(len(self.size)), key=lambda k: -strides.get(k + 1, indexed))


def index_write(base: BufferView, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> IndexWrite | None:
    """The write that an operator of the ATen graph does to its first argument, in the memory `base`; None if loops
    cannot do it. `args` are the arguments after the first."""
    write = _any_write(base, target, args, kwargs)
    return write if write is not None and not (write.mode and base.dtype not in _ATOMIC) else None


def _any_write(base: BufferView, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> IndexWrite | None:
    """As `index_write`, but also sums in half precision."""
    on_cpu = base.layout.device.type == "cpu"
    if not on_cpu and torch.are_deterministic_algorithms_enabled() or kwargs:
        return None
    make = _WRITES.get(target)
    write = make(base, *args) if make is not None else None
    if write is None or not is_possible(base, write):
        return None
    return None if on_cpu and not (adds_rows(base, write) or adds_in_parts(base, write)) else write


def adds_rows(base: BufferView, write: IndexWrite) -> bool:
    """Whether a write adds whole rows of memory: the position does not vary along them."""
    if write.mode != "add" or base.dtype not in _ATOMIC:
        return False
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
    if value.dtype != base.dtype if isinstance(value, _TENSOR) else overflows(value, base.dtype):
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
    return write_along(base, dim, index, value, True) if isinstance(value, _TENSOR + _NUMBER) else None


def write_at(base: BufferView, dim: int, index: TensorValue, value: Value) -> IndexWrite | None:
    """For each element of `index`, a write to that position along one dimension. A larger `value` is left to ATen: the
    loops would not compute all of it, and miss an error in what they do not."""
    if not base.size or len(index.size) != len(base.size) or index.dtype != torch.int64:
        return None
    if not isinstance(value, _TENSOR + _NUMBER):
        return None
    if isinstance(value, _TENSOR) and tuple(value.size) != tuple(index.size):
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
