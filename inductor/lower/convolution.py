"""Lowering of depthwise convolutions with few taps to loops on a GPU. Other convolutions remain calls of ATen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .registry import LoweringGraph, Unlowered, lowering
from .windows import Window, pair

MAX_TAPS = 25


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
    window = Window(
        (x.size[2], x.size[3]), (weight.size[2], weight.size[3]), pair(stride), pair(padding), pair(dilation)
    )
    x = x.realize(graph)

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


def loops_pay(val: AnyTensor, weight: tuple[int, ...], groups: int) -> bool:
    """Whether a convolution with this result is faster as loops: if it is depthwise, on a GPU, in channels_last."""
    depthwise = len(weight) == 4 and weight[1] == 1 and groups > 1 and weight[2] * weight[3] <= MAX_TAPS
    return depthwise and val.device.type == "cuda" and is_channels_last(val)


def is_channels_last(val: AnyTensor) -> bool:
    """Whether a 4-d tensor is contiguous in channels_last."""
    return val.is_contiguous(memory_format=torch.channels_last)
