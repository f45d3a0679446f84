"""How operators are traced for training, where that says better what the backward needs than ATen's operator does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..ir.nodes import compute_dtype
from .decompositions import decompositions

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_MEAN = 1  # of the reductions that ATen counts


def training_decompositions() -> dict[Any, Callable[..., Any]]:
    """What is rewritten as simpler operators before a joint graph is partitioned."""
    own: dict[Any, Callable[..., Any]] = {
        aten._log_softmax.default: log_softmax,
        aten.nll_loss_backward.default: nll_loss_backward,
        aten._native_batch_norm_legit_functional.default: batch_norm,
        aten._native_batch_norm_legit.no_stats: batch_norm_without_running,
    }
    return {**decompositions(), **own}


def log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """aten._log_softmax in terms of a maximum and a sum; NotImplemented where eager would lay the result out anew.

    Over a vocabulary it is the largest tensor of a language model. In these terms the backward computes it again from
    the logits, which exist anyway and are often half as wide, and from two numbers a row.
    """
    if not x.is_contiguous() or not x.numel():
        return NotImplemented
    shifted = x.to(compute_dtype(x.dtype))
    shifted = shifted - shifted.amax(dim, keepdim=True)
    result = shifted - shifted.exp().sum(dim, keepdim=True).log()
    return result if half_to_float else result.to(x.dtype)


def nll_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int,
    ignored: int, total_weight: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The loss's gradient at its row's class, zero elsewhere: a comparison of class numbers, no scatter."""
    if x.dim() != 2:
        return NotImplemented
    if reduction == _MEAN:
        grad = grad / total_weight
    if weight is not None:
        grad = grad.reshape(-1, 1) * weight
    elif grad.dim():
        grad = grad.unsqueeze(1)
    target = target.unsqueeze(1)
    hit = torch.arange(x.shape[1], device=x.device) == target
    if 0 <= ignored < x.shape[1]:
        hit = hit & (target != ignored)
    return torch.where(hit, -grad, 0.0).to(x.dtype)


Parameter = torch.Tensor | None


def batch_norm(
    x: torch.Tensor, weight: Parameter, bias: Parameter, mean: torch.Tensor, var: torch.Tensor, training: bool,
    momentum: float, eps: float,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """By the statistics of the batch; NotImplemented where ATen's operator is kept.

    On a GPU these are loops that fuse with what is around them, and the backward computes the result again from what
    was normalized. Of half precision with wider parameters on the CPU, torch's description of the operator has other
    dtypes for the saved statistics than the operator itself.
    """
    if not training or not _rewritten(x, mean):
        return NotImplemented
    wide, own_mean, own_var = _statistics(x)
    count = x.numel() // x.shape[1]
    unbiased = own_var * (count / max(1, count - 1))
    new_mean = own_mean.to(mean.dtype) * momentum + mean * (1 - momentum)
    new_var = unbiased.to(var.dtype) * momentum + var * (1 - momentum)
    return *_normalized(x, wide, own_mean, own_var, weight, bias, eps), new_mean, new_var


def batch_norm_without_running(
    x: torch.Tensor, weight: Parameter, bias: Parameter, training: bool, momentum: float, eps: float
) -> tuple[torch.Tensor, ...]:
    """The same without running statistics"""
    if not _rewritten(x, weight if weight is not None else bias):
        return NotImplemented
    wide, mean, var = _statistics(x)
    return _normalized(x, wide, mean, var, weight, bias, eps)


def _rewritten(x: torch.Tensor, parameter: Parameter) -> bool:
    if x.device.type == "cuda":
        return x.numel() > 0
    mixed = parameter is not None and parameter.dtype != x.dtype
    return mixed and x.device.type == "cpu" and x.dtype in _HALF and x.numel() > 0


def _statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    wide = x.to(compute_dtype(x.dtype))
    var, mean = torch.var_mean(wide, [d for d in range(x.dim()) if d != 1], correction=0)
    return wide, mean, var


def _normalized(
    x: torch.Tensor, wide: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, weight: Parameter, bias: Parameter,
    eps: float,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    def channel(v: torch.Tensor) -> torch.Tensor:
        return v.to(wide.dtype).reshape(-1, *[1] * (x.dim() - 2))

    scale = (var + eps).rsqrt()
    out = (wide - channel(mean)) * channel(scale)
    if weight is not None:
        out = out * channel(weight)
    if bias is not None:
        out = out + channel(bias)
    return out.to(x.dtype), mean, scale
