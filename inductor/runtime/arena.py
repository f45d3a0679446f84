"""Memory planning: assigns intermediates offsets in one arena at compile time, from their live ranges."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ALIGNMENT = 128
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Range(Generic[Name]):
    """A buffer of `nbytes` bytes that is live in steps `first` to `last`, both included."""

    name: Name
    nbytes: int
    first: int
    last: int


def plan_arena(ranges: Sequence[Range[Name]]) -> tuple[dict[Name, int], int]:
    """Byte offsets, which are multiples of ALIGNMENT, and the size of the arena in bytes.

    Buffers are placed largest first, each in the lowest gap that fits.
    """
    placed = _Placed(max((r.last for r in ranges), default=0) + 1)
    offsets: dict[Name, int] = {}
    top = 0
    for r in sorted(ranges, key=lambda r: (-r.nbytes, r.first, str(r.name))):
        need = max(ALIGNMENT, -(-r.nbytes // ALIGNMENT) * ALIGNMENT)
        at = 0
        for start, end in sorted(placed.live_in(r.first, r.last)):
            if at + need <= start:
                break
            if end > at:
                at = end
        placed.add(r.first, r.last, (at, at + need))
        offsets[r.name] = at
        top = max(top, at + need)
    return offsets, top


class _Placed:
    """The byte ranges (start, end) placed so far, indexed by the steps in which they are live.

    A segment tree over the steps and a list sorted by first step find the ranges that are live in given steps without
    scanning all of them.
    """

    def __init__(self, steps: int) -> None:
        self.leaves = 1 << (steps - 1).bit_length()
        self.tree: list[list[tuple[int, int]]] = [[] for _ in range(2 * self.leaves)]
        self.by_first: list[tuple[int, tuple[int, int]]] = []

    def add(self, first: int, last: int, place: tuple[int, int]) -> None:
        bisect.insort(self.by_first, (first, place))
        left, right = first + self.leaves, last + self.leaves + 1
        while left < right:
            if left & 1:
                self.tree[left].append(place)
                left += 1
            if right & 1:
                right -= 1
                self.tree[right].append(place)
            left, right = left >> 1, right >> 1

    def live_in(self, first: int, last: int) -> list[tuple[int, int]]:
        """The byte ranges that are live in any of the steps `first` to `last`."""
        found = []
        node = first + self.leaves
        while node:
            found += self.tree[node]
            node >>= 1
        later = bisect.bisect_left(self.by_first, (first + 1,)), bisect.bisect_left(self.by_first, (last + 1,))
        return found + [place for _, place in self.by_first[slice(*later)]]
