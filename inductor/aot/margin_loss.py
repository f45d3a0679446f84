"""multi_margin_loss and its gradient as loops, on the CPU. In a row of scores x with the class y, each other class i
counts with max(0, margin - x[y] + x[i]) ** p * weight[y], and the loss of the row is their sum divided by the number of
classes.

Like ATen's kernels, these leave out differences that are NaN, which torch's own decomposition does not.
"""

from __future__ import annotations

import torch

_NONE, _MEAN = 0, 1  # ATen's enum values of the reduction
_DTYPES = (torch.float32, torch.float64)  # of ATen's kernels


def _is_taken(x: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in _DTYPES and x.numel() > 0 and x.is_contiguous()


def _differences(
    x: torch.Tensor, target: torch.Tensor, margin: float, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The rows' differences (rows, classes), where they count, where a column is that of the row's class, and the rows'
    weights (rows, 1)."""
    rows = x if x.dim() == 2 else x.unsqueeze(0)
    places = target.reshape(-1, 1)
    difference = margin - rows.gather(1, places) + rows
    own = torch.arange(rows.shape[1], device=x.device) == places
    of_row = None if weight is None else weight[places]
    return difference, (difference > 0) & ~own, own, of_row


def multi_margin_loss(
    x: torch.Tensor, target: torch.Tensor, p: float = 1, margin: float = 1, weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:  # fmt: skip
    """aten.multi_margin_loss; NotImplemented where ATen's operator is called."""
    if not _is_taken(x) or p not in (1, 2) or x.dim() not in (1, 2):
        return NotImplemented
    difference, counts, _, of_row = _differences(x, target, margin, weight)
    share = difference if p == 1 else difference * difference
    share = share if of_row is None else share * of_row
    loss = torch.where(counts, share, 0.0).sum(1) / difference.shape[1]
    if reduction == _NONE:
        return loss.reshape(target.shape)
    return loss.mean() if reduction == _MEAN else loss.sum()


def multi_margin_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, p: float, margin: float,
    weight: torch.Tensor | None = None, reduction: int = _MEAN,
) -> torch.Tensor:  # fmt: skip
    """aten.multi_margin_loss_backward; NotImplemented where ATen's operator is called."""
    if not _is_taken(x) or p not in (1, 2) or x.dim() not in (1, 2):
        return NotImplemented
    difference, counts, own, of_row = _differences(x, target, margin, weight)
    scale = 1.0 / (difference.numel() if reduction == _MEAN else difference.shape[1])
    share = torch.full_like(difference, scale) if p == 1 else 2 * scale * difference
    share = share if of_row is None else share * of_row
    share = torch.where(counts, share, 0.0)
    share = torch.where(own, -share.sum(1, keepdim=True), share)
    return (share * (grad.reshape(-1, 1) if reduction == _NONE else grad)).reshape(x.shape)
