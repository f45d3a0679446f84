"""The dependency graph of the scheduler: which units must run before which, while units are added and merged.

A topological order is maintained incrementally (Pearce and Kelly, "A Dynamic Topological Sort Algorithm for Directed
Acyclic Graphs", 2007): a new edge that contradicts the order moves only units between its two ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

# The number of units that one search may visit. Beyond it a dependency is assumed. This may prevent the fusion of
# kernels that are far apart in a large graph, but keeps scheduling linear in the size of the graph.
MAX_VISITED = 500


class CycleError(Exception):
    """Raised if an edge would close a cycle."""


class Dependencies:
    """A directed acyclic graph over unit numbers: `before[n]` are the direct predecessors of n, `after[n]` the direct
    successors, and `position` is increasing along every edge."""

    def __init__(self) -> None:
        self.before: dict[int, set[int]] = {}
        self.after: dict[int, set[int]] = {}
        self.position: dict[int, int] = {}
        self._at: dict[int, int] = {}  # the unit at each position
        self._added = 0

    def add(self, n: int, before: Iterable[int]) -> None:
        """Adds a unit at the end of the order; `before` are its direct predecessors."""
        self.before[n], self.after[n] = set(before), set()
        for m in self.before[n]:
            self.after[m].add(n)
        self.position[n] = self._added
        self._at[self._added] = n
        self._added += 1

    def depends(self, units: Iterable[int], on: Iterable[int]) -> set[int]:
        """The members of `on` that are in `units` or on which a member of `units` depends. Members that the search does
        not reach within MAX_VISITED units are included too."""
        wanted, position = set(on), self.position
        found: set[int] = set()
        floor = min([position[m] for m in wanted], default=0)  # what is before it depends on none of them
        seen = {n for n in units if position[n] >= floor}
        latest_first = [-position[n] for n in seen]
        heapq.heapify(latest_first)
        visited = 0
        while latest_first and len(found) < len(wanted):
            at = -heapq.heappop(latest_first)
            if visited == MAX_VISITED:  # units at or before this position have not been searched
                return found | {m for m in wanted if position[m] <= at}
            visited += 1
            n = self._at[at]
            if n in wanted:
                found.add(n)
            for m in self.before[n]:
                if m not in seen and position[m] >= floor:
                    seen.add(m)
                    heapq.heappush(latest_first, -position[m])
        return found

    def insert(self, first: int, then: int) -> None:
        """Adds the edge from `first` to `then`. Raises CycleError if that closes a cycle."""
        if first in self.before[then]:
            return
        if self.position[first] > self.position[then]:
            self._reorder(first, then)
        self.before[then].add(first)
        self.after[first].add(then)

    def _reorder(self, first: int, then: int) -> None:
        """Permutes the positions of the affected units so that `first` and its predecessors precede `then` and its
        successors."""
        low, high = self.position[then], self.position[first]
        later = self._reached(then, self.after, low, high)
        if first in later:
            raise CycleError(f"unit {then} must run before unit {first}")
        earlier = self._reached(first, self.before, low, high)
        moved = [*sorted(earlier, key=self.position.__getitem__), *sorted(later, key=self.position.__getitem__)]
        for n, place in zip(moved, sorted(self.position[n] for n in moved)):
            self.position[n] = place
            self._at[place] = n

    def _reached(self, start: int, edges: dict[int, set[int]], low: int, high: int) -> set[int]:
        found, stack = {start}, [start]
        while stack:
            for n in edges[stack.pop()]:
                if n not in found and low <= self.position[n] <= high:
                    found.add(n)
                    stack.append(n)
        return found

    def merge(self, gone: int, into: int) -> None:
        """Merges unit `gone` into `into`. Raises CycleError if a third unit has to run between them."""
        before, after = self.before.pop(gone), self.after.pop(gone)
        for m in before:
            self.after[m].discard(gone)
        for m in after:
            self.before[m].discard(gone)
        del self._at[self.position.pop(gone)]
        for m in before - {into}:
            self.insert(m, into)
        for m in after - {into}:
            self.insert(into, m)
