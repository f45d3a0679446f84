"""Whether elements of one tensor share memory."""

from __future__ import annotations

import torch


def elements_overlap(x: torch.Tensor) -> bool:
    """Whether elements of `x` may share memory, as those of an expanded tensor do; of symbolic strides only a stride of
    zero counts."""
    dims = sorted((s, n) for s, n in zip(x.stride(), x.shape) if type(s) is int and type(n) is int and n != 1)
    if any(type(s) is int and s == 0 and (type(n) is not int or n > 1) for s, n in zip(x.stride(), x.shape)):
        return True
    reach = 0
    for step, length in dims:
        if step <= reach:
            return True
        reach += step * (length - 1)
    return False
