"""Decompositions that are used only for training: they let the backward save less or compute faster than torch's, or
are right where torch's are not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.nodes import compute_dtype
from .decompositions import decompositions

aten = torch.ops.aten
_MEAN = 1  # ATen's enum value of reduction="mean"


def training_decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions applied before a joint graph is partitioned."""
    own: dict[Any, Callable[..., Any]] = {
        aten._log_softmax.default: log_softmax,
        aten.nll_loss_backward.default: nll_loss_backward,
        aten.native_layer_norm_backward.default: layer_norm_backward,
        aten.smooth_l1_loss_backward.default: smooth_l1_loss_backward,
        aten.logit_backward.default: logit_backward,
        aten.softshrink_backward.default: shrink_backward,
        aten.hardshrink_backward.default: shrink_backward,
    }
    table = {**decompositions(), **own}
    for op in (aten.mse_loss_backward.default, aten.huber_loss_backward.default, aten.smooth_l1_loss_backward.default):
        table[op] = gradient_of_elements(table[op])
    table[aten.native_group_norm_backward.default] = group_norm_backward
    return table


def gradient_of_elements(decomposition: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The decomposition of a loss's backward, except for no elements, where the mean would divide a number by zero."""

    @functools.wraps(decomposition)
    def call(grad: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return decomposition(grad, x, *args, **kwargs) if x.numel() else torch.empty_like(x)

    return call


def group_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None,
    *sizes_and_wanted: Any,
) -> Any:  # fmt: skip
    """torch's decomposition, except for no elements, where it would divide a number by the size of a group. There, the
    gradients of weight and bias are sums over nothing."""
    if x.numel():
        return decompositions()[aten.native_group_norm_backward.default](
            grad, x, mean, rstd, weight, *sizes_and_wanted
        )
    *_, channels, _pixels, groups, wanted = sizes_and_wanted
    of_groups = (mean * 0.0 * rstd).sum(0)  # zero, or NaN for the mean of an image without pixels, as in eager
    of_weight = of_groups.to(x.dtype).unsqueeze(1).expand(groups, channels // groups).reshape(channels)
    gradients = (torch.empty_like(x), of_weight, x.new_zeros(channels))
    return tuple(gradient if want else None for gradient, want in zip(gradients, wanted, strict=True))


def log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """aten._log_softmax as a maximum and a sum; NotImplemented where eager would change the layout.

    Over a vocabulary, the result is the largest tensor of a language model. Decomposed, the backward recomputes it from
    the logits, which exist anyway and are often half as wide, and from two numbers per row.
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
    """The gradient of the loss, nonzero only at each row's class; compares class numbers, no scatter."""
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


def layer_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, shape: Sequence[int], mean: torch.Tensor, rstd: torch.Tensor,
    weight: torch.Tensor | None, bias: torch.Tensor | None, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    """torch's decomposition, except for the norm of a single element, whose gradient is zero. There, torch computes the
    difference of a product and its rounded value, and a fused multiply-add does not round that to zero."""
    original = decompositions()[aten.native_layer_norm_backward.default]
    single = all(type(n) is int and n == 1 for n in shape)
    if not single or not wanted[0]:
        return original(grad, x, shape, mean, rstd, weight, bias, wanted)
    _, d_weight, d_bias = original(grad, x, shape, mean, rstd, weight, bias, [False, *wanted[1:]])
    mean, rstd = mean.reshape(x.shape), rstd.reshape(x.shape)
    wide = compute_dtype(x.dtype)
    zero = (x.to(wide) - mean) * rstd * grad.to(wide)  # or NaN
    return zero.to(x.dtype, memory_format=torch.contiguous_format), d_weight, d_bias


def smooth_l1_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    """The gradient of the loss, which is NaN where the difference is; torch's decomposition gives 0 there. Like ATen's
    kernel, it computes in the dtype to which the tensors promote and returns the dtype of `x`."""
    wide = compute_dtype(torch.result_type(x, target))
    difference, scale = x.to(wide) - target.to(wide), grad.to(wide)
    if reduction == _MEAN:
        scale = scale * (1.0 / x.numel())
    outside = difference.abs() >= beta
    return torch.where(outside, scale * difference.sign(), scale * difference / beta).to(x.dtype)


def shrink_backward(grad: torch.Tensor, x: torch.Tensor, lambd: float) -> torch.Tensor:
    """The gradient of softshrink and hardshrink: 0 for x from -lambd to lambd whatever `grad` is, elsewhere `grad`."""
    return torch.where((x >= -lambd) & (x <= lambd), 0.0, grad)


def logit_backward(grad: torch.Tensor, x: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """The gradient of logit, which is NaN at NaN as in ATen's kernels for GPUs and for single elements; torch's
    decomposition gives 0 there if `eps` is given. Outside of [eps, 1 - eps] it is 0, outside of [0, 1] NaN."""
    low = 0.0 if eps is None else eps
    wide = compute_dtype(torch.result_type(grad, x))
    probability = x.to(wide)
    inside = grad.to(wide) / (probability * (1.0 - probability))
    outside = (probability < low) | (probability > 1.0 - low)
    return torch.where(outside, float("nan") if eps is None else 0.0, inside).to(torch.result_type(grad, x))
