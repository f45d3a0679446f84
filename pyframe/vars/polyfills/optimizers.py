"""A Python version of the step of RAdam that does not branch on tensors.

torch's branches on the number of steps, which is a tensor, unless `capturable` is set; that variant computes the length
of the average from the number of steps in float32, in which most digits cancel. Here it is computed in float64, as with
the Python numbers of eager.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def radam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor], *, beta1: float, beta2: float, lr: Any, weight_decay: float, eps: float,
    decoupled_weight_decay: bool, differentiable: bool, maximize: bool, capturable: bool, has_complex: bool,
) -> None:  # fmt: skip
    longest = 2 / (1 - beta2) - 1
    for param, grad, average, square, step in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        if maximize:
            grad = -grad
        if torch.is_complex(param):
            param, grad, average, square = map(torch.view_as_real, (param, grad, average, square))
        step += 1
        count = step.double()
        if weight_decay != 0:
            if decoupled_weight_decay:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad.add(param, alpha=weight_decay)
        average.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        decayed = beta2**count
        length = longest - 2 * count * decayed / (1 - decayed)
        rectification = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        change = average / (1 - beta1**count) * lr
        adapted = change * ((1 - decayed).sqrt() / square.sqrt().add_(eps)) * rectification.sqrt()
        param.sub_(torch.where(length > 5, adapted, change))
