"""Compares what two runs of a program did."""

from __future__ import annotations

import copy
import enum
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def snapshot(value: Any) -> Any:
    """A copy of the containers and tensors in `value`, which later calls do not change."""
    if isinstance(value, torch.Tensor) and not value.is_nested:
        copied = value.detach().clone()
        return (copied, type(value).__name__, value.requires_grad)
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(map(snapshot, value))
    if type(value) is dict:
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, Mapping) and not isinstance(value, types.MappingProxyType):
        return copy.copy(value)
    return value


def equal(a: Any, b: Any, path: str = "") -> str:
    """Where and how two values differ; "" if they agree: types, structure, and tensors up to rounding."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.is_nested and b.is_nested:  # their shapes have symbols, which differ
            return equal(list(a.unbind()), list(b.unbind()), path)
        return _tensors(a, b, path)
    if isinstance(a, type) or isinstance(a, enum.Enum):  # a class that the program creates is another one each time
        return "" if getattr(a, "__name__", str(a)) == getattr(b, "__name__", str(b)) else f"{path}: {a} and {b}"
    if type(a).__qualname__ != type(b).__qualname__:
        return f"{path}: {type(a).__name__} and {type(b).__name__} ({str(a)[:150]!r}, {str(b)[:150]!r})"
    if isinstance(a, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, equal_nan=a.dtype.kind in "fc")
        return "" if same else f"{path}: {a} and {b}"
    if isinstance(a, Mapping):
        if list(map(str, a)) != list(map(str, b)):
            return f"{path}: keys {list(a)} and {list(b)}"
        return _first(equal(p, q, f"{path}[{key!r}]") for (key, p), q in zip(a.items(), b.values(), strict=True))
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{path}: {len(a)} and {len(b)} items ({str(a)[:80]}, {str(b)[:80]})"
        return _first(equal(p, q, f"{path}[{i}]") for i, (p, q) in enumerate(zip(a, b, strict=True)))
    if isinstance(a, float):
        return "" if a == b or abs(a - b) <= 1e-5 * max(1, abs(a)) or (a != a and b != b) else f"{path}: {a} and {b}"
    if isinstance(a, types.FunctionType | torch.nn.Module) or (callable(a) and not hasattr(a, "__dict__")):
        return ""
    if type(a).__eq__ is object.__eq__ and not hasattr(a, "__dict__"):
        return ""
    if hasattr(a, "__dict__") and not isinstance(a, set | frozenset):
        return equal(vars(a), vars(b), f"{path}.__dict__")
    return "" if a == b else f"{path}: {str(a)[:150]!r} and {str(b)[:150]!r}"


def _tensors(a: torch.Tensor, b: torch.Tensor, path: str) -> str:
    with torch._C.DisableTorchFunctionSubclass():  # subclasses that a program creates are other ones each time
        a, b = a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor)
    if (a.dtype, a.shape, a.stride(), a.layout) != (b.dtype, b.shape, b.stride(), b.layout):
        return f"{path}: {a.dtype} {tuple(a.shape)} {a.stride()} and {b.dtype} {tuple(b.shape)} {b.stride()}"
    if (
        not torch.allclose(a.double(), b.double(), 1e-4, 1e-5, equal_nan=True)
        if not a.is_complex()
        else not (torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True))
    ):
        return f"{path}: {str(a)[:80]} and {str(b)[:80]}"
    return ""


def _first(differences: Any) -> str:
    return next(filter(None, differences), "")
