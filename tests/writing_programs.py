"""Functions that write to their arguments, of which compiled graphs must show the caller the same effects as eager."""

from __future__ import annotations

import torch


def inplace(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A write to a whole argument."""
    x.add_(y)
    return x * 2


def view_written(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A write through a view; both results are views of arguments."""
    x[0].mul_(y[1])
    return y.t(), x[1:]
