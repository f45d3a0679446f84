"""A write of elements to positions that index tensors give, as data, and the loops that do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..ir.body import LoopBody, trace
from ..ir.handler import ops
from ..ir.nodes import Allocator, BufferView, Pointwise, TensorValue, compute_dtype, store
from ..ir.size import AnySize, hint
from ..ir.symbolic import Index
from .common import operand
from .indexing import from_start

Value = TensorValue | bool | int | float
TENSOR = (Pointwise, BufferView)


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
        return [*self.indices.values(), *([self.value] if isinstance(self.value, TENSOR) else [])]

    def realized(self, graph: Allocator, buffer: str) -> IndexWrite:
        """The same write, of values and indices that are in other memory than `buffer`."""

        def apart(x: TensorValue) -> BufferView:
            memory = x.realize(graph)
            return store(graph, memory) if memory.buffer.name == buffer else memory

        value = apart(self.value) if isinstance(self.value, TENSOR) else self.value
        indices = {d: apart(x) for d, x in self.indices.items()}
        return replace(self, value=value, indices=indices)

    def body(self, base: BufferView) -> LoopBody:
        """The loops that write to `base`."""

        def store_element(place: Sequence[Index], value: Callable[[], Any], written: Any) -> None:
            ops.store(base.buffer.name, base.layout.index(place), ops.to_dtype(value(), base.dtype), self.mode, written)

        return self.loops(base, store_element)

    def loops(self, base: BufferView, point: Callable[[Sequence[Index], Callable[[], Any], Any], None]) -> LoopBody:
        """Loops over the elements of the write, which call `point` with the position in `base`, a function that gives
        the element in the compute dtype of `base`, and the condition on which it is written, or None. The last loop is
        that along which most elements are adjacent in memory."""
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
            point(place, lambda: value(tuple(index)), written)

        order = self.order(base)
        return trace([self.size[d] for d in order], (), fn)

    def order(self, base: BufferView) -> list[int]:
        """The dimensions of `size` by descending distance of neighbours in the memory of `base`; those that only
        select positions are where the indexed dimensions are."""
        indexed = max(hint(base.layout.stride[d]) for d in self.indices)
        numbers = range(1, len(self.size) + 1)
        strides = {k: hint(s) for k, s in zip(self.rest(numbers), base.layout.stride) if k != 0}
        return sorted(range(len(self.size)), key=lambda k: -strides.get(k + 1, indexed))
