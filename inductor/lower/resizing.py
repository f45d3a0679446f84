"""Lowerings of operators that change the size of images, on the CPU. On a GPU, ATen's kernels are as fast."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.symbolic import Index
from .common import shared
from .interpolation import nearest
from .pooling import MAX_TAPS
from .registry import LoweringGraph, Unlowered, lowering


@lowering("upsample_nearest2d")
def upsample_nearest2d(
    graph: LoweringGraph, x: TensorValue, output_size: Sequence[int], scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """The nearest pixel of each place; most often each pixel a whole number of times along each dimension."""
    val = graph.val
    if val.device.type != "cpu":
        raise Unlowered
    try:
        rows, columns = (_times(*each) for each in zip(x.size[-2:], val.shape[-2:], (scales_h, scales_w)))
    except Unlowered:
        return nearest(graph, x, (scales_h, scales_w))
    source = shared(graph, x)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return source.load((*index[:-2], index[-2] // rows, index[-1] // columns))

    stride = tuple(val.stride())
    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, source.reads, source.work, stride)


@lowering("upsample_nearest2d_backward")
def upsample_nearest2d_backward(
    graph: LoweringGraph, grad: TensorValue, output_size: Sequence[int], input_size: Sequence[int],
    scales_h: float | None = None, scales_w: float | None = None,
) -> TensorValue:
    """For each pixel, the sum of the gradients of its repetitions."""
    val = graph.val
    if val.device.type != "cpu":
        raise Unlowered
    rows, columns = (_times(*each) for each in zip(val.shape[-2:], grad.size[-2:], (scales_h, scales_w)))
    if rows * columns > MAX_TAPS:
        raise Unlowered
    source = shared(graph, grad)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        *outer, row, column = index
        total = None
        for i, j in itertools.product(range(rows), range(columns)):
            value = ops.to_dtype(source.load((*outer, row * rows + i, column * columns + j)), compute_dtype(val.dtype))
            total = value if total is None else ops.add(total, value)
        return total

    reads = rows * columns * source.reads
    work = rows * columns * (source.work + 1)
    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, reads, work, tuple(val.stride()))


def _times(size: int, out: int, factor: float | None) -> int:
    """How often ATen's kernel repeats each of `size` elements for a result of `out`. Unlowered if not a whole number of
    times, each equally often."""
    if type(size) is not int or type(out) is not int or size == 0 or out % size:
        raise Unlowered
    times = out // size
    if times <= 2:  # noqa: PLR2004  computed with integers
        return times
    step = torch.tensor(1.0 / factor if factor else size / out, dtype=torch.float32)
    places = (torch.arange(out, dtype=torch.float32) * step).floor().clamp(max=size - 1).long()
    if not torch.equal(places, torch.arange(out) // times):
        raise Unlowered
    return times
