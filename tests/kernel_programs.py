"""Programs that the tests of C++ kernels and of Triton kernels both compile. `check(fn, *inputs)` compares with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

SPECIAL = torch.tensor([0.0, -0.0, 1e30, -1e30, float("inf"), -float("inf"), float("nan"), -103.5, 88.7, 0.625])
UNARY = "exp tanh erf sin cos log sqrt rsqrt sigmoid neg abs floor round log1p expm1 atan special_ndtr".split()
DTYPES = [torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16, torch.bool]


def masked_pieces(check: Callable[..., Any]) -> None:
    """Results that consist of parts of the inputs and of constants."""
    check(lambda q: torch.cat([-q[..., 13:], q[..., :13]], -1) * q, torch.randn(3, 5, 26))
    check(lambda q: F.pad(q * 2, (3, 2, 1, 1), value=7.0) + 1, torch.randn(5, 19))
    check(lambda q: F.pad(F.pad(q, (1, 1)).exp(), (2, 0)).sum(1), torch.randn(5, 19))


def embedding_reads_rows(check: Callable[..., Any]) -> None:
    """Reads at positions that are data."""
    check(lambda w, i: F.embedding(i, w) * 2 + w[0], torch.randn(50, 24), torch.randint(0, 50, (7, 3)))
    check(lambda w, i: w[i, i % 24].exp(), torch.randn(50, 24), torch.randint(-24, 24, (301,)))


def cross_entropy(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """The loss of each row of `x`, whose right class is `at`."""
    x = x.float()
    top = x.amax(1, keepdim=True)
    return (x - top).exp().sum(1).log() + top[:, 0] - x.gather(1, at[:, None])[:, 0]
