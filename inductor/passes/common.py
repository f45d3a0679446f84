"""What passes share."""

from __future__ import annotations

import torch

aten = torch.ops.aten


def is_channels_last(val: torch.Tensor) -> bool:
    """Whether the memory of a tensor of four dimensions has the channels innermost."""
    return val.is_contiguous(memory_format=torch.channels_last)
