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
        while (levels := self._levels(source, sink))[sink] >= 0 and flow < INFINITE:
            flow += self._push(source, sink, levels)
        return flow, {v for v, level in enumerate(levels) if level >= 0}

    def _levels(self, source: int, sink: int) -> list[int]:
        """The distance of each vertex from the source; -1 for those that are not reached, or not before the sink."""
        edges, target, free = self._edges, self._target, self._free
        levels = [-1] * len(edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            v = queue.popleft()
            level = levels[v] + 1
            for e in edges[v]:
                w = target[e]
                if levels[w] < 0 and free[e]:
                    levels[w] = level
                    if w == sink:
                        return levels
                    queue.append(w)
        return levels

    def _push(self, source: int, sink: int, levels: list[int]) -> int:
        """Push flow along shortest paths until none is left, without recursion: a path is as long as a model is deep.
        The flow; it is not complete if it is INFINITE or more."""
        edges, target, free = self._edges, self._target, self._free
        following = [0] * len(edges)
        path: list[int] = []
        flow = 0
        v = source
        while True:
            if v == sink:
                pushed = min([free[e] for e in path])
                flow += pushed
                if flow >= INFINITE:
                    return flow
                for e in path:
                    free[e] -= pushed
                    free[e ^ 1] += pushed
                # the next path is the same up to the first edge that is now full
                kept = next(k for k, e in enumerate(path) if not free[e])
                v = target[path[kept] ^ 1]
                del path[kept:]
            out, at, level = edges[v], following[v], levels[v] + 1
            end = len(out)
            while at < end and not (levels[target[out[at]]] == level and free[out[at]]):
                at += 1
            following[v] = at
            if at < end:
                path.append(out[at])
                v = target[out[at]]
            elif path:
                v = target[path.pop() ^ 1]
                following[v] += 1
            else:
                return flow
