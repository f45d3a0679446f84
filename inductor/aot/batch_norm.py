"""Decompositions of batch normalization that uses batch statistics."""

from __future__ import annotations

import torch
from torch._prims_common import suggest_memory_format

from ..ir.nodes import compute_dtype

Parameter = torch.Tensor | None


def writing_batch_norm(
    x: torch.Tensor, weight: Parameter, bias: Parameter, mean: Parameter, var: Parameter, training: bool,
    momentum: float, eps: float,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Decomposition of aten.native_batch_norm, whose schema hides that it writes the running statistics in training, if
    there are any."""
    if not training:
        return NotImplemented
    if mean is None or var is None:
        return batch_norm_without_running(x, weight, bias, training, momentum, eps)
    function = torch.ops.aten._native_batch_norm_legit_functional
    *results, new_mean, new_var = function(x, weight, bias, mean, var, training, momentum, eps)
    mean.copy_(new_mean)
    var.copy_(new_var)
    return tuple(results)


def batch_norm(
    x: torch.Tensor, weight: Parameter, bias: Parameter, mean: torch.Tensor, var: torch.Tensor, training: bool,
    momentum: float, eps: float,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Batch norm by batch statistics, functional; NotImplemented where ATen's operator is kept.

    On a GPU the resulting loops fuse with their surroundings, and the backward recomputes the result from the
    normalized input. For half precision on the CPU, torch's fake implementation gives the statistics another dtype than
    the operator itself does.
    """
    if not training or not _rewritten(x):
        return NotImplemented
    wide, own_mean, own_var = _statistics(x)
    count = x.numel() // x.shape[1]
    unbiased = own_var * (count / max(1, count - 1))
    new_mean = own_mean.to(mean.dtype) * momentum + mean * (1 - momentum)
    new_var = unbiased.to(var.dtype) * momentum + var * (1 - momentum)
    return *_normalized(x, wide, own_mean, own_var, weight, bias, eps, mean), new_mean, new_var


def batch_norm_without_running(
    x: torch.Tensor, weight: Parameter, bias: Parameter, training: bool, momentum: float, eps: float
) -> tuple[torch.Tensor, ...]:
    """Like `batch_norm`, without running statistics."""
    if not _rewritten(x):
        return NotImplemented
    wide, mean, var = _statistics(x)
    return _normalized(x, wide, mean, var, weight, bias, eps)


def _rewritten(x: torch.Tensor) -> bool:
    return x.numel() > 0 and x.device.type in ("cpu", "cuda")


def _statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    wide = x.to(compute_dtype(x.dtype))
    var, mean = torch.var_mean(wide, [d for d in range(x.dim()) if d != 1], correction=0)
    return wide, mean, var


def _normalized(
    x: torch.Tensor, wide: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, weight: Parameter, bias: Parameter,
    eps: float, running: Parameter = None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """The result, and the saved mean and scale; on the CPU these have the result's dtype if all parameters have it, and
    the result is contiguous or channels_last."""

    def channel(v: torch.Tensor) -> torch.Tensor:
        return v.to(wide.dtype).reshape(-1, *[1] * (x.dim() - 2))

    scale = (var + eps).rsqrt()
    out = (wide - channel(mean)) * channel(scale)
    if weight is not None:
        out = out * channel(weight)
    if bias is not None:
        out = out + channel(bias)
    on_cpu = x.device.type == "cpu"
    narrow = on_cpu and all(p is None or p.dtype == x.dtype for p in (weight, bias, running))
    saved = x.dtype if narrow else mean.dtype
    out = out.to(x.dtype)
    out = out.contiguous(memory_format=suggest_memory_format(x)) if on_cpu else out
    return out, mean.to(saved), scale.to(saved)
