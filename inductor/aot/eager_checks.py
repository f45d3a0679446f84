"""Operators that read the values of their arguments to check them, which fake tensors do not have, in terms of
operators that make the same checks as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _one_hot(classes: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """F.one_hot; RuntimeError, as there, for a class that is negative or too large."""
    if num_classes <= 0 or classes.dtype != torch.int64:
        return torch._C._nn.one_hot(classes, num_classes)
    zeros = torch.zeros((*classes.shape, num_classes), dtype=torch.int64, device=classes.device)
    return zeros.scatter(-1, classes.unsqueeze(-1), 1)


WITHOUT_READING: dict[Any, Callable[..., Any]] = {torch._C._nn.one_hot: _one_hot}
