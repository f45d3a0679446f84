"""Replays the random numbers that one run of a model drew in another run, so that models with dropout have a reference.

A generator draws other numbers for float64 than for bfloat16, so the same seed would give another model in a wider
dtype. This module records eager's draws as results of ATen operators, and a run in a wider dtype gets them converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# Operators that overwrite their first argument by draws that do not depend on it.
FILLS = {
    aten.bernoulli_.float, aten.uniform_.default, aten.normal_.default, aten.exponential_.default,
}  # fmt: skip


class NoReplay(Exception):
    """A draw that cannot be repeated in another dtype, or a run that makes other draws than the recorded one."""


def _draws(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call draws from the process's generator, rather than from one that it was given."""
    own = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
    return torch.Tag.nondeterministic_seeded in func.tags and not own


class Recorded(TorchDispatchMode):
    """A mode that records random draws in `draws`: (the operator, the tensor of random numbers)."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[Any, torch.Tensor | None]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not _draws(func, args, kwargs or {}):
            return out
        if func in FILLS:
            self.draws.append((func, args[0].clone()))
        elif func is aten.native_dropout.default:
            self.draws.append((func, out[1].clone()))
        elif func is aten.rrelu_with_noise.default:
            self.draws.append((func, args[1].clone()))
        else:
            self.draws.append((func, None))
        return out


class Replayed(TorchDispatchMode):
    """Under it, draws are the recorded ones; raises NoReplay where that cannot be."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__()
        self.left = list(recorded.draws)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not _draws(func, args, kwargs or {}):
            return func(*args, **(kwargs or {}))
        known, numbers = self.left.pop(0) if self.left else (None, None)
        if known is not func or numbers is None or numbers.shape != args[0].shape:
            raise NoReplay(f"{func} cannot be repeated")
        return _REPEAT.get(func, _fill)(args, numbers)


def _fill(args: tuple[Any, ...], numbers: torch.Tensor) -> torch.Tensor:
    return args[0].copy_(numbers)


def _dropout(args: tuple[Any, ...], kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`native_dropout(input, p, train)`."""
    x, p, _ = args
    return x * kept / (1 - p), kept


def _rrelu(args: tuple[Any, ...], noise: torch.Tensor) -> torch.Tensor:
    """`rrelu_with_noise(input, noise, ...)`: in training the noise is the slope at each element."""
    args[1].copy_(noise)
    return args[0] * args[1]


_REPEAT: dict[Any, Callable[[tuple[Any, ...], torch.Tensor], Any]] = {
    aten.native_dropout.default: _dropout, aten.rrelu_with_noise.default: _rrelu,
}  # fmt: skip
