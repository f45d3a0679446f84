"""Minimum cut of a network by Dinic's algorithm; the partitioner uses it."""

from __future__ import annotations

from collections import deque

INFINITE = 1 << 62


class Network:
    """A directed graph with integer capacities; vertices are numbers from 0."""

    def __init__(self, vertices: int) -> None:
        self._edges: list[list[int]] = [[] for _ in range(vertices)]
        self._target: list[int] = []
        self._free: list[int] = []

    def edge(self, source: int, target: int, capacity: int) -> None:
        """Add an edge; capacity INFINITE if it must not be cut."""
        for a, b, free in ((source, target, capacity), (target, source, 0)):
            self._edges[a].append(len(self._target))
            self._target.append(b)
            self._free.append(free)

    def cut(self, source: int, sink: int) -> tuple[int, set[int]]:
        """The maximum flow (INFINITE or more if there is no cut), and the source side of a minimum cut."""
        flow = 0
        while (levels := self._levels(source)) and levels[sink] >= 0 and flow < INFINITE:
            following = [0] * len(self._edges)
            while (pushed := self._push(source, sink, levels, following)) and flow < INFINITE:
                flow += pushed
        return flow, {v for v, level in enumerate(levels) if level >= 0}

    def _levels(self, source: int) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            v = queue.popleft()
            for e in self._edges[v]:
                if self._free[e] and levels[self._target[e]] < 0:
                    levels[self._target[e]] = levels[v] + 1
                    queue.append(self._target[e])
        return levels

    def _push(self, source: int, sink: int, levels: list[int], following: list[int]) -> int:
        """Push flow along an augmenting path, without recursion: a path is as long as a model is deep."""
        path: list[int] = []
        v = source
        while v != sink:
            edges = self._edges[v]
            while following[v] < len(edges):
                e = edges[following[v]]
                if self._free[e] and levels[self._target[e]] == levels[v] + 1:
                    break
                following[v] += 1
            if following[v] < len(edges):
                path.append(e)
                v = self._target[e]
            elif path:
                v = self._target[path.pop() ^ 1]
                following[v] += 1
            else:
                return 0
        pushed = min(self._free[e] for e in path)
        for e in path:
            self._free[e] -= pushed
            self._free[e ^ 1] += pushed
        return pushed
