"""Operators on floating-point tensors of two dtypes whose ATen kernels differ from torch's decompositions.

Decompositions promote the tensors and return the dtype to which they promote. Some kernels raise RuntimeError instead,
for example "Found dtype Half but expected Float", and others return the dtype of one argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten


def _cross_entropy_of_target() -> bool:
    """Whether the kernel of `binary_cross_entropy_with_logits` writes into a tensor of the target's dtype, as in torch
    2.11. Later releases promote."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        x, target = (torch.empty(0, dtype=dtype, device="cpu") for dtype in (torch.float64, torch.float32))
        return aten.binary_cross_entropy_with_logits.default(x, target).dtype == target.dtype


# The result has the dtype of the second argument.
OF_TARGET = (aten.binary_cross_entropy_with_logits.default,) if _cross_entropy_of_target() else ()

# Their kernels raise for some or all combinations of dtypes. They are decomposed only if all tensors have one dtype.
OF_ONE_DTYPE = (
    aten._softmax_backward_data.default, aten._log_softmax_backward_data.default, aten.glu_backward.default,
    aten.gelu_backward.default, aten._prelu_kernel.default, aten._prelu_kernel_backward.default,
    aten.heaviside.default, aten.linalg_cross.default, aten.huber_loss_backward.default,
    aten.log_sigmoid_backward.default,
    aten.binary_cross_entropy_backward.default,
    aten.reflection_pad1d_backward.default, aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default, *OF_TARGET,
)  # fmt: skip

# Batch normalisation accepts float32 parameters and statistics beside an input in half precision, nothing else.
BATCH_NORMS = (
    aten.native_batch_norm.default, aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.no_stats,
)  # fmt: skip

# The result has the dtype of the first argument of losses, and of the second argument of backwards.
LOSSES = (aten.huber_loss.default, aten.soft_margin_loss.default)
BACKWARDS = (
    aten.soft_margin_loss_backward.default, aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default,
    aten.mish_backward.default,
)  # fmt: skip
_MEAN = 1  # ATen's enum value of reduction="mean"


def of_several_dtypes(*args: Any, **kwargs: Any) -> bool:
    """Whether the floating-point tensors among the arguments have more than one dtype."""
    return len({x.dtype for x in (*args, *kwargs.values()) if _is_floating(x)}) > 1


def of_mixed_parameters(x: torch.Tensor, *parameters: Any, **kwargs: Any) -> bool:
    """Whether batch normalisation of `x` on the CPU raises because of the dtypes of parameters and statistics."""
    given = {p.dtype for p in (*parameters, *kwargs.values()) if _is_floating(p)} - {x.dtype}
    accepted = {torch.float32} if x.dtype in (torch.float16, torch.bfloat16) else set()
    return x.is_cpu and not given <= accepted


def _is_floating(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def loss_of_first_dtype(decomposition: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The decomposition of a loss whose kernel rounds each element to the dtype of the first argument."""

    @functools.wraps(decomposition)
    def call(x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, *args: Any, **kwargs: Any) -> torch.Tensor:
        if x.dtype == target.dtype:
            return decomposition(x, target, reduction, *args, **kwargs)
        loss = decomposition(x, target, 0, *args, **kwargs).to(x.dtype)
        return loss if reduction == 0 else loss.mean() if reduction == _MEAN else loss.sum()

    return call


def of_second_dtype(decomposition: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`decomposition` with its result in the dtype of the second argument."""

    @functools.wraps(decomposition)
    def call(grad: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return decomposition(grad, x, *args, **kwargs).to(x.dtype)

    return call


def result_dtypes() -> dict[Any, Callable[..., torch.dtype]]:
    """The dtype of the result, by operator, where torch's fake kernels predict another one: a function of the
    operator's arguments."""
    return {
        **dict.fromkeys(LOSSES, lambda x, *args, **kwargs: x.dtype),
        **dict.fromkeys((*BACKWARDS, *OF_TARGET), lambda x, other, *args, **kwargs: other.dtype),
        aten.threshold_backward.default: lambda grad, x, *args, **kwargs: torch.result_type(grad, x),
    }
