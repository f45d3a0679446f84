"""Lowerings of two-dimensional max and average pooling with small windows."""

from __future__ import annotations

import math
from typing import Any

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import used_results
from .registry import LoweringGraph, Unlowered, lowering
from .windows import Window, pair

MAX_TAPS = 25  # for larger windows ATen's loop is faster than this many unrolled loads
MAX_READS, MAX_WORK = 6, 16  # cost of an input element up to which it is recomputed at every tap, not stored


@lowering("max_pool2d_with_indices")
def max_pool2d_with_indices(
    graph: LoweringGraph, x: TensorValue, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[TensorValue, ...]:
    """The greatest element of each window. Unlowered if the indices are used: only ATen computes them."""
    if 1 in used_results(graph.node):
        raise Unlowered
    val = graph.val[0]
    window = _window(x, kernel, stride, padding, dilation)
    if not val.dtype.is_floating_point:
        raise Unlowered
    out = _pooled(graph, x, val, window, -math.inf, ops.maximum)
    return out, None  # type: ignore[return-value]


@lowering("avg_pool2d")
def avg_pool2d(
    graph: LoweringGraph, x: TensorValue, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> TensorValue:
    """The mean of each window."""
    val = graph.val
    window = _window(x, kernel, stride, padding, 1)
    padded = window.padding != (0, 0) or ceil_mode
    if not val.dtype.is_floating_point or padded and not (divisor_override or count_include_pad and not ceil_mode):
        raise Unlowered
    total = _pooled(graph, x, val, window, 0.0, ops.add)
    share, dtype = 1.0 / (divisor_override or window.area), compute_dtype(val.dtype)
    add, total.work = total.inner_fn, total.work + 1
    total.inner_fn = lambda index: ops.mul(add(index), ops.constant(share, dtype))
    return total


def _window(x: TensorValue, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    steps = stride if stride or isinstance(stride, int) else kernel
    window = Window((x.size[-2], x.size[-1]), pair(kernel), pair(steps), pair(padding), pair(dilation))
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
            value = window.load(x, index, tap, size[-2:], outside)
            out = value if out is None else combine(out, value)
        return out

    reads, work = window.area * x.reads, window.area * (x.work + 2)
    return Pointwise(val.device, val.dtype, size, inner_fn, reads, work, tuple(val.stride()))
