"""Names of dtypes, as loop IR, plans and messages write them: "float32" for torch.float32."""

from __future__ import annotations

import ctypes

import torch


def dtype_name(dtype: torch.dtype | str) -> str:
    """The name of a dtype, or of its text: "float32" for torch.float32 and for "torch.float32"."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The torch.dtype of a name; ValueError if torch has no dtype of this name."""
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"not a dtype: {name}")
    return dtype


def to_float32(value: float) -> float:
    """The nearest number of float32; infinite for what overflows."""
    return ctypes.c_float(value).value
