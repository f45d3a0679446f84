"""Lowerings of max and average pooling with small windows, of images and, on the CPU, of volumes. Their gradients are
loops on a GPU, and on the CPU if windows do not overlap."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import Reduce, drop, stored, used_results
from .registry import LoweringGraph, Unlowered, lowering
from .windows import Window, for_each_dim

MAX_TAPS = 27  # for larger windows ATen's loop is faster than this many unrolled loads
MAX_READS, MAX_WORK = 6, 16  # cost of an input element up to which it is recomputed at every tap, not stored


@lowering("max_pool2d_with_indices")
def max_pool2d_with_indices(
    graph: LoweringGraph, x: TensorValue, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, dims: int = 2,
) -> tuple[TensorValue, ...]:
    """The greatest element of each window, and its position if that is used."""
    return _greatest(graph, x, _window(x, kernel, stride, padding, dilation, dims))


@lowering("max_pool3d_with_indices")
def max_pool3d_with_indices(graph: LoweringGraph, *args: Any, **options: Any) -> tuple[TensorValue, ...]:
    """The same for volumes."""
    _only_on_cpu(graph.val[0])
    return max_pool2d_with_indices(graph, *args, **options, dims=3)


@lowering("adaptive_max_pool2d")
def adaptive_max_pool2d(graph: LoweringGraph, x: TensorValue, output_size: Any) -> tuple[TensorValue, ...]:
    """The greatest element of each of `output_size` equal parts of an image, and its position if that is used."""
    return _greatest(graph, x, _small(_equal_parts(x, output_size, 2)))


def _greatest(graph: LoweringGraph, x: TensorValue, window: Window) -> tuple[TensorValue, ...]:
    indexed = 1 in used_results(graph.node)
    val = graph.val[0]
    if not val.dtype.is_floating_point:
        raise Unlowered
    if indexed:
        x = stored(x).realize(graph)
    out = _pooled(graph, x, val, window, -math.inf, ops.maximum)
    return out, _positions(graph, x, window) if indexed else None  # type: ignore[return-value]


def _positions(graph: LoweringGraph, x: TensorValue, window: Window) -> TensorValue:
    """The position of the greatest element of each window in its image. As in ATen, this is the first one, or the last
    NaN, and the first element where all are -inf. It is the position of the first tap plus the offset of the greatest
    one, and only offsets, which are constants of 32 bits, are selected."""
    val, dims = graph.val[1], window.dims
    size, dtype = tuple(val.shape), compute_dtype(x.dtype)

    def offset(tap: Sequence[int]) -> Any:
        return ops.constant(window.number([k * d for k, d in zip(tap, window.dilation)]), torch.int32)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        best, chosen = ops.constant(-math.inf, dtype), None
        for tap in reversed(list(window.taps())):  # the first tap within the image is written last
            mask = window.inside(index, tap, size[-dims:])
            chosen = offset(tap) if chosen is None or mask is None else ops.where(mask, offset(tap), chosen)
        for tap in window.taps():
            value = window.load(x, index, tap, size[-dims:], -math.inf)
            better = ops.logical_or(ops.gt(value, best), ops.isnan(value))
            best, chosen = ops.where(better, value, best), ops.where(better, offset(tap), chosen)
        first = window.number(window.at(index, (0,) * dims)[-dims:])
        return ops.add(ops.index_expr(first, torch.int64), ops.to_dtype(chosen, torch.int64))

    return Pointwise(val.device, val.dtype, size, inner_fn, window.area, 5 * window.area, tuple(val.stride()))


@lowering("max_pool2d_with_indices_backward")
def max_pool2d_with_indices_backward(
    graph: LoweringGraph, grad: TensorValue, x: TensorValue, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, indices: TensorValue, dims: int = 2,
) -> TensorValue:
    """For each element of the input, the sum of the gradients of the windows in which it is the greatest."""
    return _to_the_greatest(graph, grad, _window(x, kernel, stride, padding, dilation, dims), indices)


@lowering("max_pool3d_with_indices_backward")
def max_pool3d_with_indices_backward(graph: LoweringGraph, *args: Any) -> TensorValue:
    """The same for volumes."""
    _only_on_cpu(graph.val)
    return max_pool2d_with_indices_backward(graph, *args, dims=3)


@lowering("adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(
    graph: LoweringGraph, grad: TensorValue, x: TensorValue, indices: TensorValue
) -> TensorValue:
    """For each element of the input, the gradient of its part of the image if it is the greatest there."""
    return _to_the_greatest(graph, grad, _small(_equal_parts(x, grad.size[-2:], 2)), indices)


def _to_the_greatest(graph: LoweringGraph, grad: TensorValue, window: Window, indices: TensorValue) -> TensorValue:
    val = graph.val
    if not _is_spread_by_loops(val, window) or 0 in grad.size:
        raise Unlowered
    grad, indices = grad.realize(graph), indices.realize(graph)

    def share(index: tuple[Index, ...], place: Sequence[Index]) -> Any:
        number = window.number(index[-window.dims :])
        greatest = ops.eq(indices.load(place), ops.index_expr(number, torch.int64))
        return ops.where(greatest, grad.load(place), ops.constant(0.0, compute_dtype(val.dtype)))

    return _spread(graph, grad, window, 2, share)


@lowering("avg_pool2d_backward")
def avg_pool2d_backward(
    graph: LoweringGraph, grad: TensorValue, x: TensorValue, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None, dims: int = 2,
) -> TensorValue:
    """For each element of the input, the sum of the gradients of the windows that contain it, divided by their size."""
    window = _window(x, kernel, stride, padding, 1, dims)
    return _mean_gradient(graph, grad, window, ceil_mode, count_include_pad, divisor_override)


def _mean_gradient(
    graph: LoweringGraph, grad: TensorValue, window: Window, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None,
) -> TensorValue:
    val = graph.val
    if not _is_spread_by_loops(val, window) or 0 in grad.size:
        raise Unlowered
    grad, dtype, out = grad.realize(graph), compute_dtype(val.dtype), grad.size[-window.dims :]
    even = _is_divisor_known(window, ceil_mode, count_include_pad, divisor_override)

    def share(index: tuple[Index, ...], place: Sequence[Index]) -> Any:
        if even:
            return ops.mul(grad.load(place), ops.constant(1.0 / (divisor_override or window.area), dtype))
        return ops.div(grad.load(place), ops.to_dtype(_counted(window, place, out, count_include_pad), dtype))

    return _spread(graph, grad, window, 1, share)


@lowering("avg_pool3d_backward")
def avg_pool3d_backward(graph: LoweringGraph, *args: Any) -> TensorValue:
    """The same for volumes."""
    _only_on_cpu(graph.val)
    return avg_pool2d_backward(graph, *args, dims=3)


def on_gpu(val: AnyTensor) -> bool:
    """Whether a tensor is on a GPU, where ATen's kernels for gradients of pooling are no faster than loops."""
    return val.device.type == "cuda"


def _only_on_cpu(val: AnyTensor) -> None:
    if val.device.type != "cpu" or val.dtype not in (torch.float32, torch.float64):  # ATen lacks kernels
        raise Unlowered


def _is_spread_by_loops(val: AnyTensor, window: Window) -> bool:
    """Whether a loop computes the gradient `val` of the input. On the CPU ATen's kernel, which visits each window once,
    is faster where an element is in several windows."""
    apart = all(k <= s for k, s in zip(window.kernel, window.stride)) and set(window.dilation) == {1}
    return val.dtype.is_floating_point and (apart or on_gpu(val))


def _spread(
    graph: LoweringGraph, grad: TensorValue, window: Window, reads: int,
    share: Callable[[tuple[Index, ...], Sequence[Index]], Any],
) -> TensorValue:
    """The gradient of a pooled input: for each of its elements, the sum of `share(index, place)` over the places of the
    result whose window contains it."""
    val, dims = graph.val, window.dims

    def inner_fn(index: tuple[Index, ...]) -> Any:
        total = None
        for position, _, mask in window.readers(index[-dims:], grad.size[-dims:]):
            place = [*index[:-dims], *position]
            value = share(index, place) if mask is None else ops.masked(mask, lambda: share(index, place), 0.0)  # noqa: B023
            total = value if total is None else ops.add(total, value)
        return total

    cost = reads * window.area
    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, cost, 4 * cost, tuple(val.stride()))


@lowering("avg_pool2d")
def avg_pool2d(
    graph: LoweringGraph, x: TensorValue, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, dims: int = 2,
) -> TensorValue:
    """The mean of each window."""
    val, out = graph.val, graph.val.shape[-dims:]
    window = _window(x, kernel, stride, padding, 1, dims)
    even = _is_divisor_known(window, ceil_mode, count_include_pad, divisor_override)
    if not val.dtype.is_floating_point or not even and not on_gpu(val):
        raise Unlowered
    total = _pooled(graph, x, val, window, 0.0, ops.add)
    share, dtype = 1.0 / (divisor_override or window.area), compute_dtype(val.dtype)
    add, total.work = total.inner_fn, total.work + (1 if even else 6)

    def mean(index: tuple[Index, ...]) -> Any:
        if even:
            return ops.mul(add(index), ops.constant(share, dtype))
        return ops.div(add(index), ops.to_dtype(_counted(window, index, out, count_include_pad), dtype))

    total.inner_fn = mean
    return total


@lowering("avg_pool3d")
def avg_pool3d(graph: LoweringGraph, *args: Any, **options: Any) -> TensorValue:
    """The same for volumes."""
    _only_on_cpu(graph.val)
    return avg_pool2d(graph, *args, **options, dims=3)


@lowering("_adaptive_avg_pool2d")
def adaptive_avg_pool2d(graph: LoweringGraph, x: TensorValue, output_size: Any, dims: int = 2) -> TensorValue:
    """The mean of each of `output_size` equal parts of an image."""
    window = _equal_parts(x, output_size, dims)
    if window.area > MAX_TAPS:
        return _means_of_parts(graph, x, window)
    return avg_pool2d(graph, x, window.kernel, dims=dims)


@lowering("_adaptive_avg_pool3d")
def adaptive_avg_pool3d(graph: LoweringGraph, x: TensorValue, output_size: Any) -> TensorValue:
    """The same for volumes."""
    _only_on_cpu(graph.val)
    return adaptive_avg_pool2d(graph, x, output_size, 3)


def _means_of_parts(graph: LoweringGraph, x: TensorValue, window: Window) -> TensorValue:
    """The mean of each of the parts of an image, by one reduction: they are too large to be added tap by tap."""
    val, dims = graph.val, window.dims
    if on_gpu(val) or not val.dtype.is_floating_point or not val.is_contiguous() or 0 in val.shape:
        raise Unlowered
    outer = tuple(val.shape[:-dims])
    size = (*outer, *(n for part in zip(val.shape[-dims:], window.kernel) for n in part))
    taps = range(len(outer) + 1, len(size), 2)
    dtype, share = compute_dtype(val.dtype), 1.0 / window.area

    def element(index: tuple[Index, ...]) -> Any:
        at = index[len(outer) :]
        places = [at[2 * d] * window.kernel[d] + at[2 * d + 1] for d in range(dims)]
        return ops.to_dtype(x.load((*index[: len(outer)], *places)), dtype)

    def mean(total: Any) -> Any:
        return ops.mul(total, ops.constant(share, dtype))

    return drop(Reduce(size, tuple(taps))(graph, x, "sum", element, val.dtype, mean), taps)


@lowering("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(
    graph: LoweringGraph, grad: TensorValue, x: TensorValue, dims: int = 2
) -> TensorValue:
    """For each element of the input, the gradient of its part of the image, divided by the size of that."""
    window = _equal_parts(x, grad.size[-dims:], dims)
    if on_gpu(graph.val):
        _small(window)
    return _mean_gradient(graph, grad, window, False, True, None)


@lowering("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(graph: LoweringGraph, grad: TensorValue, x: TensorValue) -> TensorValue:
    """The same for volumes."""
    _only_on_cpu(graph.val)
    return adaptive_avg_pool2d_backward(graph, grad, x, 3)


def _equal_parts(x: TensorValue, output_size: Any, dims: int) -> Window:
    """The window that moves by its own size over the parts of an image. Unlowered unless they are equal."""
    sizes, parts = tuple(x.size[-dims:]), for_each_dim(output_size, dims)
    if any(type(n) is not int or n == 0 for n in (*sizes, *parts)) or any(n % out for n, out in zip(sizes, parts)):
        raise Unlowered
    kernel = tuple(n // out for n, out in zip(sizes, parts))
    return Window(sizes, kernel, kernel, (0,) * dims, (1,) * dims)


def _is_divisor_known(window: Window, ceil_mode: bool, count_include_pad: bool, divisor: int | None) -> bool:
    """Whether the sums of all windows are divided by the same number."""
    return bool(divisor) or not ceil_mode and (count_include_pad or not any(window.padding))


def _counted(window: Window, index: Sequence[Index], out: Sequence[int], count_include_pad: bool) -> Any:
    """The number of elements in the window of a place of the result, as int32: those of the padding count if
    `count_include_pad`, but not what a window of `ceil_mode` has beyond it. `out` is the size of the result."""

    def number(value: Index) -> Any:
        return ops.index_expr(value, torch.int32)

    counts = []
    for d, place in enumerate(index[-window.dims :]):
        padding, length = window.padding[d], window.kernel[d]
        first, low = place * window.stride[d] - padding, -padding if count_include_pad else 0
        limit = window.size[d] + (padding if count_include_pad else 0)
        start, end = number(first), number(first + length)
        if low > -padding:
            start = ops.maximum(start, number(low))
        if (out[d] - 1) * window.stride[d] - padding + length > limit:
            end = ops.minimum(end, number(limit))
        counts.append(ops.sub(end, start))
    return functools.reduce(ops.mul, counts)


def _window(x: TensorValue, kernel: Any, stride: Any, padding: Any, dilation: Any, dims: int = 2) -> Window:
    steps = stride if stride or isinstance(stride, int) else kernel
    numbers = (for_each_dim(each, dims) for each in (kernel, steps, padding, dilation))
    return _small(Window(tuple(x.size[-dims:]), *numbers))


def _small(window: Window) -> Window:
    """A window, if its taps can be unrolled."""
    if window.area > MAX_TAPS:
        raise Unlowered
    return window


def _pooled(
    graph: LoweringGraph, x: TensorValue, val: AnyTensor, window: Window, outside: float, combine: Any
) -> Pointwise:
    if isinstance(x, Pointwise) and (x.reads > MAX_READS or x.work > MAX_WORK):
        x = x.realize(graph)
    size = tuple(val.shape)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        out = None
        for tap in window.taps():
            value = window.load(x, index, tap, size[-window.dims :], outside)
            out = value if out is None else combine(out, value)
        return out

    reads, work = window.area * x.reads, window.area * (x.work + 2)
    return Pointwise(val.device, val.dtype, size, inner_fn, reads, work, tuple(val.stride()))
