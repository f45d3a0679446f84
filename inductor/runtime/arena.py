"""Where intermediates live: offsets in one arena, planned offline from their live ranges."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ALIGNMENT = 64
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Range(Generic[Name]):
    """A buffer of `nbytes` that is live in steps `first` to `last`, both included."""

    name: Name
    nbytes: int
    first: int
    last: int


def plan_arena(ranges: Sequence[Range[Name]]) -> tuple[dict[Name, int], int]:
    """Byte offsets, multiples of ALIGNMENT, and the arena's size. Largest first, each at the lowest gap that fits."""
    placed: list[tuple[int, int, Range[Name]]] = []
    offsets: dict[Name, int] = {}
    top = 0
    for r in sorted(ranges, key=lambda r: (-r.nbytes, r.first, str(r.name))):
        need = max(ALIGNMENT, -(-r.nbytes // ALIGNMENT) * ALIGNMENT)
        at = 0
        for start, end, other in sorted(placed, key=lambda p: p[0]):
            if other.last < r.first or r.last < other.first:
                continue
            if at + need <= start:
                break
            at = max(at, end)
        placed.append((at, at + need, r))
        offsets[r.name] = at
        top = max(top, at + need)
    return offsets, top
