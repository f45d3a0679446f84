"""Lowerings of batch normalization with given (running) statistics, as in inference."""

from __future__ import annotations

from typing import Any

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import used_results
from .convolution import is_channels_last
from .registry import LoweringGraph, Unlowered, lowering

WORK = 6


@lowering("native_batch_norm")
def native_batch_norm(
    graph: LoweringGraph, x: TensorValue, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
    momentum: float, eps: float
) -> tuple[TensorValue | None, ...]:
    """Normalization with the running statistics. Unlowered in training, which needs the statistics of the batch."""
    if training:
        raise Unlowered
    return given_statistics(graph, x, weight, bias, mean, var, eps)


@lowering("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def without_training(
    graph: LoweringGraph, x: TensorValue, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[TensorValue | None, ...]:
    """The overloads that always use the running statistics."""
    return given_statistics(graph, x, weight, bias, mean, var, eps)


def given_statistics(
    graph: LoweringGraph, x: TensorValue, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> tuple[TensorValue | None, ...]:
    """(x - mean) / sqrt(var + eps) * weight + bias, per channel. Unlowered if other results are used: a backward
    needs them, and only ATen computes them."""
    val, *saved = graph.val
    if not val.dtype.is_floating_point or used_results(graph.node) != {0}:
        raise Unlowered
    dtype = compute_dtype(val.dtype)

    def channel(of: TensorValue, index: tuple[Index, ...]) -> Any:
        return ops.to_dtype(of.load([index[0]]), dtype)

    def scale_of(index: tuple[Index, ...]) -> Any:
        scale = ops.rsqrt(ops.add(channel(var, index), ops.constant(eps, dtype)))
        return scale if weight is None else ops.mul(scale, channel(weight, index))

    scale = Pointwise(val.device, dtype, (val.shape[1],), scale_of)
    if _channels_are_innermost(val):
        scale.realize(graph)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        own = index[1:2]
        out = ops.mul(ops.sub(ops.to_dtype(x.load(index), dtype), channel(mean, own)), scale.load(own))
        return out if bias is None else ops.add(out, channel(bias, own))

    given = [t for t in (weight, bias, mean, var) if t is not None]
    reads, work = x.reads + len(given), x.work + WORK
    out = Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, reads, work, tuple(val.stride()))
    return (out, *(None for _ in saved))


def _channels_are_innermost(val: AnyTensor) -> bool:
    """Whether C++ loops over a tensor have the channel as their innermost variable. The factor of a channel is then not
    the same throughout a loop, and a root and a division for each element would take longer than to read it."""
    return val.device.type == "cpu" and val.dim() > 2 and is_channels_last(val)
