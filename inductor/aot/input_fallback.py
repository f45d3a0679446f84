"""What a compiled forward or backward does with inputs that it cannot take: copy unaligned ones, or refuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..overlap import extent
from ..runtime.plan_spec import PlanSpec


class Refused(Exception):
    """A compiled forward does not accept these inputs and has not changed them; the caller runs the captured graph."""


class AlignedRetry:
    """A plan's fallback: runs `plan` again on aligned copies of the inputs that are not aligned as its spec requires.

    Raises Refused if alignment is not the problem (an input that is written overlaps another), or if a written input is
    unaligned.
    """

    plan: Callable[..., Any]

    def __init__(self, spec: PlanSpec) -> None:
        self.aligned, self.written = spec.aligned, set(spec.mutated)

    def __call__(self, *args: torch.Tensor) -> Any:
        moved = [i for i in self.aligned if i < len(args) and args[i].data_ptr() % 16]
        if not moved or not self.written.isdisjoint(moved):
            raise Refused
        given = list(args)
        for i in moved:
            given[i] = _aligned(args[i])
        return self.plan(*given)


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    length = extent(x.shape, x.stride())
    return x.as_strided((length,), (1,)).clone().as_strided(x.shape, x.stride())
