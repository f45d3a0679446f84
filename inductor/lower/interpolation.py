"""Lowerings of linear and cubic interpolation, and of nearest neighbours, on the CPU.

A result is interpolated along one dimension after the other. What is found along rows (where elements are gathered) is
in memory, and so are tables with the positions and weights along a dimension: they are computed once per call, not once
per element. Positions that are a fixed number apart are no table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype, dense_order, store
from ..ir.symbolic import Index
from .common import shared
from .padding import Test, innermost, joined
from .registry import LoweringGraph, Unlowered, lowering

_INT = torch.int64
MAX_PARTS = 3  # of a loop over positions that are a fixed number apart


@dataclass(frozen=True)
class _Scale:
    """How a dimension of `size` elements is interpolated at `out` positions. `factor` is the given ratio of the sizes,
    `aligned` that the first and the last element are positions, `taps` how many neighbours are combined."""

    size: int
    out: int
    factor: float | None
    aligned: bool
    taps: int
    exact: bool = False  # of nearest neighbours: that to the centre of an element, not to its begin

    @property
    def repeats(self) -> int:
        """How many adjacent positions read one element, if ATen's kernels for nearest neighbours find them by a
        division of integers; else 0."""
        times = self.out // self.size if self.taps == 1 and not self.exact and self.out % self.size == 0 else 0
        return times if times <= 2 else 0  # noqa: PLR2004

    @property
    def step(self) -> float:
        """The distance of two positions, as ATen's kernels compute it in single precision."""
        if self.aligned:
            return (self.size - 1) / (self.out - 1) if self.out > 1 else 0.0
        return 1.0 / self.factor if self.factor else self.size / self.out

    def at(self, place: Any, number: Callable[[float], Any], arithmetic: Any) -> Any:
        """The position `place` of the result among the elements, as a floating-point number."""
        if self.aligned:
            return arithmetic.mul(place, number(self.step))
        centre = 0.5 if self.taps > 1 or self.exact else 0.0
        at = arithmetic.mul(arithmetic.add(place, number(centre)) if centre else place, number(self.step))
        if self.taps > 1:
            at = arithmetic.sub(at, number(0.5))
        return arithmetic.maximum(at, number(0.0)) if self.taps == 2 else at  # noqa: PLR2004

    def first(self, dtype: torch.dtype) -> torch.Tensor:
        """The element before each position, which may be -1, found with numbers of `dtype`."""
        at = self.at(torch.arange(self.out, dtype=dtype), lambda v: torch.tensor(v, dtype=dtype), torch)
        return at.floor().long().clamp(max=self.size - 1)

    def offsets(self) -> Sequence[int]:
        """The positions of the taps beside the element before them. Where linear interpolation changes no size, ATen
        reads one element twice: its neighbour, whose weight is zero, may be infinite."""
        if self.taps == 2 and self.size == self.out:  # noqa: PLR2004
            return (0, 0)
        return range(-1, 3) if self.taps == 4 else range(self.taps)  # noqa: PLR2004


def _weights(t: Any, dtype: torch.dtype, taps: int) -> list[Any]:
    """The weight of each tap at distance `t` behind an element."""
    number = lambda v: ops.constant(v, dtype)  # noqa: E731
    rest = ops.sub(number(1.0), t)
    if taps == 2:  # noqa: PLR2004
        return [rest, t]

    def near(x: Any) -> Any:  # up to a distance of 1
        value = ops.sub(ops.mul(number(1.25), x), number(2.25))
        return ops.add(ops.mul(ops.mul(value, x), x), number(1.0))

    def far(x: Any) -> Any:  # between 1 and 2
        value = ops.add(ops.mul(number(-0.75), x), number(3.75))
        value = ops.sub(ops.mul(value, x), number(6.0))
        return ops.add(ops.mul(value, x), number(3.0))

    return [far(ops.add(t, number(1.0))), near(t), near(rest), far(ops.add(rest, number(1.0)))]


def _progressions(positions: Sequence[int]) -> list[tuple[int, int, int]]:
    """The parts of a sequence in which each number is the one before plus a fixed number: (end, first, difference)."""
    found: list[tuple[int, int, int]] = []
    start = 0
    while start < len(positions):
        end = start + 1
        step = positions[end] - positions[start] if end < len(positions) else 0
        while end < len(positions) and positions[end] - positions[end - 1] == step:
            end += 1
        if end - start == 2 and end < len(positions):  # noqa: PLR2004  its second one may belong to the next part
            end, step = start + 1, 0
        found.append((end, positions[start] - step * start, step))
        start = end
    return found


class _Along:
    """The interpolation along dimension `dim` of a result; `in_vectors` if its elements are adjacent there.

    Weights are computed from the positions that are used: rounded otherwise, an element and its weight would not fit
    each other where a position is close to an element."""

    def __init__(self, graph: LoweringGraph, scale: _Scale, dim: int, dtype: torch.dtype, in_vectors: bool) -> None:
        self.graph, self.scale, self.dim, self.dtype = graph, scale, dim, dtype
        first = scale.first(dtype)
        taps = [(first + offset).clamp(0, scale.size - 1) for offset in scale.offsets()]
        parts = [_progressions(each.tolist()) for each in (first, *taps)]
        regular = max(map(len, parts)) <= (MAX_PARTS if in_vectors else 1)
        self.first, *self.parts = parts if regular else [[]] * (scale.taps + 1)
        self.tables: list[BufferView] = []
        if not regular and not scale.repeats:
            before = self._table(torch.int32, lambda i: ops.to_dtype(self._element_before(i), torch.int32))
            self.tables = [before, *(self._table(torch.int32, self._tap(before, k)) for k in scale.offsets())]
        self.weights = [self._table(dtype, self._weight(k)) for k in range(scale.taps)] if scale.taps > 1 else []

    def _table(self, dtype: torch.dtype, entry: Callable[[Index], Any]) -> BufferView:
        """Memory for what `entry` gives at each position of the result."""
        device = self.graph.val.device
        return store(self.graph, Pointwise(device, dtype, (self.scale.out,), lambda index: entry(index[0])))

    def _place(self, i: Index) -> Any:
        """A position among the elements, as a floating-point number."""
        return self.scale.at(ops.index_expr(i, self.dtype), lambda v: ops.constant(v, self.dtype), ops)

    def _element_before(self, i: Index) -> Any:
        return ops.minimum(ops.floor(self._place(i)), ops.constant(self.scale.size - 1, self.dtype))

    def _tap(self, before: BufferView, offset: int) -> Callable[[Index], Any]:
        """The elements that a tap reads, from a table with those before the positions."""

        def entry(i: Index) -> Any:
            found = ops.add(before.load((i,)), ops.constant(offset, torch.int32))
            last = ops.constant(self.scale.size - 1, torch.int32)
            return ops.minimum(ops.maximum(found, ops.constant(0, torch.int32)), last)

        return entry

    def _weight(self, tap: int) -> Callable[[Index], Any]:
        def entry(i: Index) -> Any:
            if self.tables:
                before = ops.to_dtype(self.tables[0].load((i,)), self.dtype)
            else:
                values = [ops.index_expr(i * step + first, self.dtype) for _, first, step in self.first]
                before = values[-1]
                for (end, _, _), value in reversed(list(zip(self.first[:-1], values))):
                    inside = ops.lt(ops.index_expr(i, _INT), ops.constant(end, _INT))
                    before = ops.where(inside, value, before)
            zero, one = (ops.constant(v, self.dtype) for v in (0.0, 1.0))
            t = ops.minimum(ops.maximum(ops.sub(self._place(i), before), zero), one)
            return _weights(t, self.dtype, self.scale.taps)[tap]

        return entry

    def value(self, x: TensorValue) -> Pointwise:
        """`x` interpolated along this dimension."""
        dim, size = self.dim, tuple(x.size)

        def inner_fn(index: tuple[Index, ...]) -> Any:
            total = None
            for tap in range(self.scale.taps):
                value = self._element(x, list(index), tap)
                if self.weights:
                    value = ops.mul(ops.to_dtype(value, self.dtype), self.weights[tap].load((index[dim],)))
                total = value if total is None else ops.add(total, value)
            return total

        dtype = self.dtype if self.weights else x.dtype
        size = (*size[:dim], self.scale.out, *size[dim + 1 :])
        taps = self.scale.taps
        return Pointwise(x.device, dtype, size, inner_fn, taps * (x.reads + 1), taps * (x.work + 3))

    def _element(self, x: TensorValue, place: list[Index], tap: int) -> Any:
        i = place[self.dim]
        if self.scale.repeats:
            return x.load([*place[: self.dim], i // self.scale.repeats, *place[self.dim + 1 :]])
        if self.tables:
            at = ops.to_dtype(self.tables[1 + tap].load((i,)), _INT)
            return x.load([*place[: self.dim], ops.indirect(at, self.scale.size, True), *place[self.dim + 1 :]])
        parts: list[tuple[Test, Index]] = [(("lt", i, end), i * step + first) for end, first, step in self.parts[tap]]
        return joined(x, place, self.dim, parts)


def _interpolated(
    graph: LoweringGraph, x: TensorValue, factors: Sequence[float | None], aligned: bool, taps: int,
    exact: bool = False,
) -> TensorValue:
    """`x` interpolated along its last dimensions, in the order in which the fewest elements are computed."""
    val = graph.val
    dims, stride = len(factors), tuple(val.stride())
    numbers = (*x.size, *val.shape)
    if 1 in val.shape[-dims:]:  # strides of such dimensions are those of ATen's kernels
        raise Unlowered
    if val.device.type != "cpu" or any(type(n) is not int or n == 0 for n in numbers):
        raise Unlowered
    if not val.dtype.is_floating_point or dense_order(val.shape, stride) is None:
        raise Unlowered
    wide, first, adjacent = compute_dtype(val.dtype) if taps > 1 else torch.float32, val.dim() - dims, innermost(stride)
    scales = {
        d: _Scale(x.size[d], val.shape[d], factors[d - first], aligned, taps, exact) for d in range(first, val.dim())
    }
    growing = {d: scale.out >= scale.size for d, scale in scales.items()}
    order = sorted(scales, key=lambda d: (growing[d], -d if growing[d] else d))
    found = shared(graph, x)
    for n, d in enumerate(order):
        along = _Along(graph, scales[d], d, wide, d == adjacent)
        found = along.value(found)
        rest = order[n + 1 :]
        if taps > 1 and rest and (d == adjacent or adjacent in rest[:1]):
            found = store(graph, found, _dense_strides(found.size, stride))
    out = found
    return Pointwise(
        val.device, val.dtype, tuple(val.shape), lambda i: ops.to_dtype(out.load(i), compute_dtype(val.dtype)),
        out.reads, out.work, stride,
    )  # fmt: skip


def _dense_strides(size: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Dense strides for `size`, with the dimensions in the order of `stride`."""
    found = [0] * len(size)
    step = 1
    for d in sorted(range(len(size)), key=lambda d: (stride[d], -d)):
        found[d], step = step, step * size[d]
    return found


@lowering("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def upsample_linear(
    graph: LoweringGraph, x: TensorValue, output_size: Sequence[int], align_corners: bool, *factors: float | None
) -> TensorValue:
    """Linear interpolation of the dimensions from the third on."""
    return _interpolated(graph, x, factors or (None,) * len(output_size), align_corners, 2)


@lowering("upsample_nearest1d", "upsample_nearest3d")
def upsample_nearest(
    graph: LoweringGraph, x: TensorValue, output_size: Sequence[int], *factors: float | None
) -> TensorValue:
    """The nearest element of each position of signals and volumes. Images: `resizing.py`."""
    return nearest(graph, x, factors or (None,) * len(output_size))


@lowering("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_nearest_exact(
    graph: LoweringGraph, x: TensorValue, output_size: Sequence[int], *factors: float | None
) -> TensorValue:
    """The same, for the centres of elements."""
    return nearest(graph, x, factors or (None,) * len(output_size), True)


def nearest(
    graph: LoweringGraph, x: TensorValue, factors: Sequence[float | None], exact: bool = False
) -> TensorValue:
    """The nearest elements at the positions of the result, along as many dimensions as there are `factors`."""
    return _interpolated(graph, x, factors, False, 1, exact)


@lowering("upsample_bicubic2d")
def upsample_bicubic2d(
    graph: LoweringGraph, x: TensorValue, output_size: Sequence[int], align_corners: bool, *factors: float | None
) -> TensorValue:
    """Cubic convolution, with A = -0.75, along both dimensions of images."""
    return _interpolated(graph, x, factors or (None,) * len(output_size), align_corners, 4)
