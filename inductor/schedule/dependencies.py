"""The dependency graph of the scheduler: which units must run before which, while units are added and merged.

A topological order is maintained incrementally (Pearce and Kelly, "A Dynamic Topological Sort Algorithm for Directed
Acyclic Graphs", 2007): a new edge that contradicts the order moves only units between its two ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

# Units that one search may visit.  Beyond them a dependency is taken for granted: that costs a fusion of kernels far
# apart in a large graph, and keeps scheduling linear in the size of the graph.
MAX_VISITED = 500


class CycleError(Exception):
    """An edge would close a cycle."""


class Dependencies:
    """A directed acyclic graph over unit numbers: `before[n]` are the direct predecessors of n, `after[n]` the direct
    successors, and `position` is increasing along every edge."""

    def __init__(self) -> None:
        self.before: dict[int, set[int]] = {}
        self.after: dict[int, set[int]] = {}
        self.position: dict[int, int] = {}
        self._added = 0

    def add(self, n: int, before: Iterable[int]) -> None:
        """A new unit, last in the order."""
        self.before[n], self.after[n] = set(before), set()
        for m in self.before[n]:
            self.after[m].add(n)
        self.position[n] = self._added
        self._added += 1

    def depends(self, units: Iterable[int], on: Iterable[int]) -> set[int]:
        """Those of `on` that are among `units`, or that one of `units` depends on; also those too far back to see."""
        wanted = set(on)
        found: set[int] = set()
        seen = set(units)
        latest_first = [(-self.position[n], n) for n in seen]
        heapq.heapify(latest_first)
        floor = min((self.position[m] for m in wanted), default=0)
        visited = 0
        while latest_first and -latest_first[0][0] >= floor:
            at, n = heapq.heappop(latest_first)
            if visited == MAX_VISITED:  # what lies before this place was not reached yet
                return found | {m for m in wanted if self.position[m] <= -at}
            visited += 1
            if n in wanted:
                found.add(n)
            for m in self.before[n]:
                if m not in seen:
                    seen.add(m)
                    heapq.heappush(latest_first, (-self.position[m], m))
        return found

    def insert(self, first: int, then: int) -> None:
        """`first` must run before `then`. CycleError if it cannot."""
        if first in self.before[then]:
            return
        if self.position[first] > self.position[then]:
            self._reorder(first, then)
        self.before[then].add(first)
        self.after[first].add(then)

    def _reorder(self, first: int, then: int) -> None:
        """Puts all that `first` depends on before all that depends on `then`, in the places that they have now."""
        low, high = self.position[then], self.position[first]
        later = self._reached(then, self.after, low, high)
        if first in later:
            raise CycleError(f"unit {then} must run before unit {first}")
        earlier = self._reached(first, self.before, low, high)
        moved = [*sorted(earlier, key=self.position.__getitem__), *sorted(later, key=self.position.__getitem__)]
        for n, place in zip(moved, sorted(self.position[n] for n in moved)):
            self.position[n] = place

    def _reached(self, start: int, edges: dict[int, set[int]], low: int, high: int) -> set[int]:
        found, stack = {start}, [start]
        while stack:
            for n in edges[stack.pop()]:
                if n not in found and low <= self.position[n] <= high:
                    found.add(n)
                    stack.append(n)
        return found

    def merge(self, gone: int, into: int) -> None:
        """Unit `gone` becomes a part of `into`. CycleError if a third unit has to run between them."""
        before, after = self.before.pop(gone), self.after.pop(gone)
        for m in before:
            self.after[m].discard(gone)
        for m in after:
            self.before[m].discard(gone)
        del self.position[gone]
        for m in before - {into}:
            self.insert(m, into)
        for m in after - {into}:
            self.insert(into, m)
