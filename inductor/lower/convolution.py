"""Lowering of depthwise convolutions with few taps, and of their gradients, to loops on a GPU. Other convolutions
remain calls of ATen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.body import LoopBody, trace
from ..ir.buffer import Layout, contiguous_strides
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype, store
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import Reduce, drop, used_results
from .registry import LoweringGraph, Unlowered, lowering
from .windows import Window, pair

MAX_TAPS = 25
DOWN_ROWS = (torch.bfloat16, torch.float16, torch.float32)  # dtypes of `can_go_down_rows`


@lowering("convolution")
def convolution(
    graph: LoweringGraph, x: TensorValue, weight: TensorValue, bias: Any, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> TensorValue:
    """A depthwise convolution as a sum over the taps of each channel's filter, which fuses with later operators."""
    val = graph.val
    if transposed or not loops_pay(val, tuple(weight.size), groups) or x.dtype != weight.dtype:
        raise Unlowered
    size, dtype, each = tuple(val.shape), compute_dtype(val.dtype), weight.size[0] // groups
    window = _window(x, weight, stride, padding, dilation)
    x, weight = x.realize(graph), _by_tap(graph, weight)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        channel = index[1]
        place = (index[0], channel // each, *index[2:])
        total = None
        for tap in window.taps():
            value = window.load(x, place, tap, size[2:], 0.0)
            term = ops.mul(value, weight.load([channel, 0, *tap]))
            total = term if total is None else ops.add(total, term)
        return total if bias is None else ops.add(total, ops.to_dtype(bias.load([channel]), dtype))

    reads, work = 2 * window.area, 4 * window.area
    return Pointwise(val.device, val.dtype, size, inner_fn, reads, work, tuple(val.stride()))


@lowering("convolution_backward")
def convolution_backward(
    graph: LoweringGraph, grad: TensorValue, x: TensorValue, weight: TensorValue, bias_size: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    wanted: Sequence[bool],
) -> tuple[TensorValue | None, ...]:
    """The gradients of a depthwise convolution's input, weight and bias: a sum over the taps that have read an element,
    a sum over all pixels for each tap, and a sum over all pixels. The second is a call that becomes a kernel of its own
    (`schedule/depthwise_gradient.py`) where there is one."""
    val = graph.node.args[0].meta["val"]  # type: ignore[union-attr]
    if transposed or not gradient_loops_pay(val, tuple(weight.size), groups):
        raise Unlowered
    if not x.dtype == weight.dtype == grad.dtype or any(type(n) is int and n == 0 for n in (*x.size, *grad.size)):
        raise Unlowered
    window = _window(x, weight, stride, padding, dilation)
    results = used_results(graph.node)
    used = [bool(want) and k in results for k, want in enumerate(wanted)]
    grad = grad.realize(graph)
    gradients: list[TensorValue | None] = [None, None, None]
    filters = _by_tap(graph, weight) if used[0] else None
    if filters is not None:
        gradients[0] = _input_gradient(graph, grad, filters, tuple(x.size), window)
    if used[1]:
        x = x.realize(graph)
        layout = Layout.contiguous(graph.val[1].device, graph.val[1].dtype, tuple(weight.size))
        if can_go_down_rows(grad.layout, x.layout, layout, window.stride, window.dilation):
            rest = None, [1, 1], [*window.padding], [1, 1], False, [0, 0], groups, [False, True, False]
            args = grad, x, filters or weight.realize(graph), *rest  # of the filters only the size matters
            gradients[1] = graph.add_call(torch.ops.aten.convolution_backward.default, args, 1, layout)
        else:
            gradients[1] = _weight_gradient(graph, grad, x, layout, window)
    if used[2]:
        space = Reduce(tuple(grad.size), (0, 2, 3))
        gradients[2] = drop(space(graph, grad, "sum", grad.load, graph.val[2].dtype), space.dims)
    return tuple(gradients)


def loops_pay(val: AnyTensor, weight: tuple[int, ...], groups: int) -> bool:
    """Whether a convolution with this result is faster as loops: if it is depthwise, on a GPU, in channels_last."""
    depthwise = len(weight) == 4 and weight[1] == 1 and groups > 1 and weight[2] * weight[3] <= MAX_TAPS
    return depthwise and val.device.type == "cuda" and is_channels_last(val)


def gradient_loops_pay(val: AnyTensor, weight: tuple[int, ...], groups: int) -> bool:
    """Whether the gradients of such a convolution, of which `val` is the gradient of the result, are faster as loops.
    With several filters per channel, those of one channel are read by stride."""
    return weight[0] == groups and loops_pay(val, weight, groups)


def can_go_down_rows(grad: Layout, x: Layout, result: Layout, stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether there are kernels for a depthwise convolution with one filter per channel, with these layouts of the
    gradient of its result, of its input and of its weight's gradient."""
    if any(type(n) is not int or n == 0 for at in (grad, x, result) for n in (*at.size, *at.stride, at.extent)):
        return False
    if {*stride, *dilation} != {1} or x.device.type != "cuda" or x.dtype not in DOWN_ROWS:
        return False
    if not grad.dtype == x.dtype == result.dtype or result.stride != contiguous_strides(result.size):
        return False
    return all(_by_pixel(at) and at.extent < 2**31 for at in (grad, x))


def _by_pixel(at: Layout) -> bool:
    _, channels, height, width = at.size
    return at.stride == (height * width * channels, 1, width * channels, channels)


def is_channels_last(val: AnyTensor) -> bool:
    """Whether a 4-d tensor is contiguous in channels_last."""
    return val.is_contiguous(memory_format=torch.channels_last)


def _window(
    x: TensorValue, weight: TensorValue, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Window:
    size, kernel = (x.size[2], x.size[3]), (weight.size[2], weight.size[3])
    return Window(size, kernel, pair(stride), pair(padding), pair(dilation))


def _by_tap(graph: LoweringGraph, weight: TensorValue) -> BufferView:
    """The filters in memory with neighbouring channels adjacent, as a warp reads them: a copy of this small tensor,
    unless they are that already."""
    filters, one, height, width = weight.size
    if height * width == 1 or isinstance(weight, BufferView) and weight.layout.stride[0] == 1:
        return weight.realize(graph)
    return store(graph, weight, (1, filters, width * filters, filters))


def _input_gradient(
    graph: LoweringGraph, grad: BufferView, weight: BufferView, size: tuple[int, ...], window: Window
) -> TensorValue:
    val, each = graph.val[0], weight.size[0] // size[1]

    def inner_fn(index: tuple[Index, ...]) -> Any:
        n, channel, *pixel = index
        total = None
        for position, tap, mask in window.readers(pixel, grad.size[2:]):
            for filter_ in (channel * each + k for k in range(each)):

                def term(filter_: Index = filter_, at: Any = position, tap: Any = tap) -> Any:
                    return ops.mul(grad.load([n, filter_, *at]), weight.load([filter_, 0, *tap]))

                value = term() if mask is None else ops.masked(mask, term, 0.0)
                total = value if total is None else ops.add(total, value)
        return total

    area = window.area * each
    return Pointwise(val.device, val.dtype, size, inner_fn, 2 * area, 4 * area, tuple(val.stride()))


def _weight_gradient(
    graph: LoweringGraph, grad: BufferView, x: BufferView, layout: Layout, window: Window
) -> TensorValue:
    """One loop over the pixels of the result, in which a sum for each tap reads each element of `grad` once."""
    val, filters = graph.val[1], layout.size[0]
    batch, _, *space = grad.size
    each, dtype = filters // x.size[1], compute_dtype(val.dtype)

    def body_of(name: str) -> LoopBody:
        def run(index: tuple[Index, ...], pixel: tuple[Index, ...]) -> None:
            (filter_,), (n, *at) = index, pixel
            gradient, sums = grad.load([n, filter_, *at]), {}
            for tap in window.taps():
                value = window.load(x, [n, filter_ // each, *at], tap, space, 0.0)
                sums[tap] = ops.reduction(dtype, "sum", ops.mul(gradient, value))
            for tap, total in sums.items():
                ops.store(name, layout.index([filter_, 0, *tap]), ops.to_dtype(total, val.dtype))

        return trace([filters], [batch, *space], run)

    return BufferView(graph.add_computed(layout, body_of), layout)
