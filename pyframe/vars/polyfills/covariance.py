"""Python versions of `torch.cov` without weights and of `torch.corrcoef`. ATen's version reads a number of a tensor to
learn whether there are more observations than the correction; here that is known from the sizes."""

from __future__ import annotations

import torch
from torch import Tensor


def cov(input: Tensor, *, correction: int = 1) -> Tensor:  # noqa: A002  the name of torch's argument
    observed = input.view(1, -1) if input.dim() < 2 else input
    count = torch.full((), observed.size(1), dtype=torch.long, device=input.device)
    centered = observed - observed.sum(1).div(count).unsqueeze(1)
    return torch.true_divide(torch.mm(centered, centered.t().conj()), count - correction).squeeze()


def corrcoef(input: Tensor) -> Tensor:  # noqa: A002
    c = cov(input)
    if c.dim() == 0:
        return c / c  # NaN where the variance is 0
    variances = c.diag()
    deviations = torch.sqrt(torch.real(variances) if c.is_complex() else variances)
    c = c / deviations.view(-1, 1)
    c = c / deviations.view(1, -1)
    if c.is_complex():
        return torch.complex(torch.real(c).clip(-1, 1), torch.imag(c).clip(-1, 1))
    return c.clip(-1, 1)
