"""The `fused=True` operators of `torch.optim`, decomposed into operators on single tensors.

Functionalization rejects the fused operators if one of the lists that they write is empty, such as the list of maxima
without `amsgrad`. Decomposed, they become kernels like any other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Number = float | Tensor


def _wide(x: Tensor) -> Tensor:
    """`x` in the dtype in which ATen's kernels compute."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class _Update:
    """What all fused operators share: gradients are divided by `grad_scale` and written back, and nothing is written if
    `found_inf` is 1."""

    def __init__(self, grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        self.grad_scale = grad_scale
        self.skipped = None if found_inf is None else found_inf.reshape(()) == 1

    def gradient(self, grad: Tensor, maximize: bool) -> Tensor:
        value = _wide(grad)
        if self.grad_scale is not None:
            value = value / self.grad_scale.reshape(())
            self.write(grad, value)
        return -value if maximize else value

    def decayed(self, grad: Tensor, param: Tensor, maximize: bool, weight_decay: float) -> tuple[Tensor, Tensor]:
        """The gradient including weight decay, and the parameter."""
        found, value = self.gradient(grad, maximize), _wide(param)
        return found + weight_decay * value if weight_decay else found, value

    def write(self, x: Tensor, value: Tensor) -> None:
        x.copy_(value if self.skipped is None else torch.where(self.skipped, _wide(x), value))


def adam_(
    self: Sequence[Tensor], grads: Sequence[Tensor], exp_avgs: Sequence[Tensor], exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor], state_steps: Sequence[Tensor], *, lr: Number, beta1: float, beta2: float,
    weight_decay: float, eps: float, amsgrad: bool, maximize: bool, grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None, decoupled: bool = False,
) -> None:  # fmt: skip
    """`torch._fused_adam_`; with `decoupled`, `torch._fused_adamw_`."""
    update = _Update(grad_scale, found_inf)
    for k, param in enumerate(self):
        grad, value = update.decayed(grads[k], param, maximize, 0.0 if decoupled else weight_decay)
        if weight_decay and decoupled:
            value = value - lr * weight_decay * value
        step = state_steps[k].double()
        average = torch.lerp(_wide(exp_avgs[k]), grad, 1 - beta1)
        square = beta2 * _wide(exp_avg_sqs[k]) + (1 - beta2) * grad * grad
        largest = square
        if amsgrad:
            largest = torch.maximum(_wide(max_exp_avg_sqs[k]), square)
            update.write(max_exp_avg_sqs[k], largest)
        root = (1 - beta2**step).sqrt()
        update.write(param, value - lr / (1 - beta1**step) * average / (largest.sqrt() / root + eps))
        update.write(exp_avgs[k], average)
        update.write(exp_avg_sqs[k], square)


def adamw_(*args: Any, **kwargs: Any) -> None:
    """`torch._fused_adamw_`."""
    adam_(*args, **kwargs, decoupled=True)


def sgd_(
    self: Sequence[Tensor], grads: Sequence[Tensor], momentum_buffer_list: Sequence[Tensor], *, weight_decay: float,
    momentum: float, lr: Number, dampening: float, nesterov: bool, maximize: bool, is_first_step: bool,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
) -> None:  # fmt: skip
    """`torch._fused_sgd_`."""
    update = _Update(grad_scale, found_inf)
    for k, param in enumerate(self):
        grad, value = update.decayed(grads[k], param, maximize, weight_decay)
        if momentum:
            kept = _wide(momentum_buffer_list[k])
            kept = grad if is_first_step else momentum * kept + (1 - dampening) * grad
            update.write(momentum_buffer_list[k], kept)
            grad = grad + momentum * kept if nesterov else kept
        update.write(param, value - lr * grad)


def adagrad_(
    self: Sequence[Tensor], grads: Sequence[Tensor], state_sums: Sequence[Tensor], state_steps: Sequence[Tensor], *,
    lr: Number, lr_decay: float, weight_decay: float, eps: float, maximize: bool, grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:  # fmt: skip
    """`torch._fused_adagrad_`."""
    update = _Update(grad_scale, found_inf)
    for k, param in enumerate(self):
        grad, value = update.decayed(grads[k], param, maximize, weight_decay)
        total = _wide(state_sums[k]) + grad * grad
        rate = lr / (1 + (state_steps[k].double() - 1) * lr_decay)
        update.write(state_sums[k], total)
        update.write(param, value - rate * grad / (total.sqrt() + eps))


FUSED_OPTIMIZERS: dict[Any, Callable[..., Any]] = {
    torch._fused_adam_: adam_, torch._fused_adamw_: adamw_, torch._fused_sgd_: sgd_, torch._fused_adagrad_: adagrad_,
}  # fmt: skip
