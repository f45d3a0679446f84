"""Values of functional tensors, by which functionalization stands for tensors that the program may write to."""

from __future__ import annotations

from typing import Any

import torch


def unwrapped(x: Any) -> Any:
    """The value of a functional tensor after all writes to it; other values are returned unchanged."""
    if not isinstance(x, torch.Tensor):
        return x
    torch._sync(x)
    return torch._from_functional_tensor(x)
