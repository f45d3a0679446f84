"""Lowerings of im2col, which copies the patches of an image to columns, of its gradient col2im, and of the gradient of
`Tensor.unfold`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue
from ..ir.symbolic import Index
from .pooling import MAX_TAPS
from .registry import LoweringGraph, Unlowered, lowering
from .windows import Window, pair


@lowering("im2col")
def im2col(
    graph: LoweringGraph, x: TensorValue, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> TensorValue:
    """The patches of images of size (..., channels, height, width), as (..., channels * taps, patches); elements of the
    padding are 0."""
    val, size = graph.val, (x.size[-2], x.size[-1])
    window = Window(size, pair(kernel), pair(stride), pair(padding), pair(dilation))
    if not val.dtype.is_floating_point:
        raise Unlowered
    if any(type(n) is not int or n == 0 for n in (*x.size, *val.shape)):
        raise Unlowered
    out, (height, width) = _places(window), window.kernel

    def inner_fn(index: tuple[Index, ...]) -> Any:
        *outer, column, patch = index
        tap = column // width % height, column % width
        place = window.at([*outer, column // window.area, patch // out[1], patch % out[1]], tap)
        mask = window.within(place)
        return x.load(place) if mask is None else ops.masked(mask, lambda: x.load(place), 0.0)

    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, x.reads, x.work + 4, tuple(val.stride()))


@lowering("col2im")
def col2im(
    graph: LoweringGraph, columns: TensorValue, size: Sequence[int], kernel: Any, dilation: Any, padding: Any,
    stride: Any,
) -> TensorValue:
    """Images of `size` (height, width) from their patches: the sum of the elements of all patches at each place."""
    val = graph.val
    window = Window(pair(size), pair(kernel), pair(stride), pair(padding), pair(dilation))
    if not val.dtype.is_floating_point or any(type(n) is not int for n in val.shape):
        raise Unlowered
    steps = [k if d > 1 else -(-k // s) for k, d, s in zip(window.kernel, window.dilation, window.stride)]
    if 0 in (*columns.size, *val.shape) or steps[0] * steps[1] > MAX_TAPS:
        raise Unlowered
    columns, out = columns.realize(graph), _places(window)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        *outer, channel, row, column = index
        total = None
        for place, tap, mask in window.readers((row, column), out):

            def element(place: Any = place, tap: Any = tap) -> Any:
                within = (channel * window.kernel[0] + tap[0]) * window.kernel[1] + tap[1]
                return columns.load([*outer, within, place[0] * out[1] + place[1]])

            value = element() if mask is None else ops.masked(mask, element, 0.0)
            total = value if total is None else ops.add(total, value)
        return total

    cost = steps[0] * steps[1]
    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, cost, 4 * cost, tuple(val.stride()))


@lowering("unfold_backward")
def unfold_backward(
    graph: LoweringGraph, grad: TensorValue, sizes: Sequence[int], dim: int, size: int, step: int
) -> TensorValue:
    """The gradient of `x.unfold(dim, size, step)`: for each element, the sum of the gradients of the windows that
    contain it."""
    val = graph.val
    if not val.dtype.is_floating_point or any(type(n) is not int or n == 0 for n in (*val.shape, *grad.size)):
        raise Unlowered
    dim %= val.dim()
    windows = grad.size[dim]
    window = Window((val.shape[dim],), (size,), (step,), (0,), (1,))
    if -(-size // step) > MAX_TAPS:
        raise Unlowered
    grad = grad.realize(graph)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        total = None
        for (place,), (tap,), mask in window.readers((index[dim],), (windows,)):

            def element(place: Any = place, tap: Any = tap) -> Any:
                return grad.load([*index[:dim], place, *index[dim + 1 :], tap])

            value = element() if mask is None else ops.masked(mask, element, 0.0)
            total = value if total is None else ops.add(total, value)
        return total

    cost = -(-size // step)
    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, cost, 4 * cost, tuple(val.stride()))


def _places(window: Window) -> tuple[int, ...]:
    """The number of positions of a window per dimension."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(window.size, window.kernel, window.stride, window.padding, window.dilation)
    )
