"""Finds which results of a graph autograd computes from other results of the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

Edge = tuple[Any, int]  # an autograd node, and the number of one of its outputs


@dataclass(frozen=True)
class Level:
    """A set of returned tensors, `made` (numbers), none of which is computed from another one of the set. `sources`:
    the numbers of the flat results from which autograd computes them, directly or indirectly."""

    made: tuple[int, ...]
    sources: tuple[int, ...]


def levels(returned: Sequence[torch.Tensor], results: Sequence[tuple[torch.Tensor | None, int | None]]) -> list[Level]:
    """The levels of differentiable `returned` tensors; each level is computed from results of earlier levels.

    `results`: for each flat result, the tensor (None if autograd does not connect it to anything), and the number of
    the returned tensor that it is or is a view of (None for a view of an input).
    """
    if not returned or not any(x is not None for x, _ in results):
        return []
    edges: dict[Edge, int] = {}  # the results at each edge, as a bit set of their numbers
    for i, (x, _) in enumerate(results):
        if x is not None and x.grad_fn is not None:
            edge = x.grad_fn, x.output_nr
            edges[edge] = edges.get(edge, 0) | 1 << i
    below = _results_below([x.grad_fn for x in returned], edges)
    found: dict[int, list[int]] = {}
    for k, x in enumerate(returned):
        bits = below[x.grad_fn]
        found[k] = [i for i, (_, base) in enumerate(results) if bits >> i & 1 and base != k]
    depth: dict[int | None, int] = {None: 0}  # of returned tensors; a source of a source is a source, too
    for k in sorted(found, key=lambda k: len(found[k])):
        depth[k] = 1 + max((depth.get(results[i][1], 0) for i in found[k]), default=-1)
    members: dict[int, list[int]] = {}
    for k in found:
        if found[k]:
            members.setdefault(depth[k], []).append(k)
    return [
        Level(tuple(members[d]), tuple(sorted({i for k in members[d] for i in found[k]}))) for d in sorted(members)
    ]


def _results_below(roots: Sequence[Any], edges: dict[Edge, int]) -> dict[Any, int]:
    """For each node reachable from `roots`, the results that it is computed from, as a bit set of their numbers."""
    below: dict[Any, int] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node in below:
            stack.pop()
            continue
        missing = [source for source, _ in node.next_functions if source is not None and source not in below]
        if missing:
            stack += missing
            continue
        stack.pop()
        bits = 0
        for source, number in node.next_functions:
            if source is not None:
                bits |= below[source] | edges.get((source, number), 0)
        below[node] = bits
    return below


def reaching(returned: Sequence[torch.Tensor], leaves: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """For each of `leaves` the numbers of the differentiable `returned` tensors that autograd connects to it."""
    numbers = {id(x): i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)}
    edges: dict[Edge, int] = {}
    seen: set[Any] = set()
    stack = [x.grad_fn for x in returned]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # of a node that accumulates the gradient of a leaf
        if isinstance(variable, torch.Tensor) and id(variable) in numbers:
            edges[node, 0] = 1 << numbers[id(variable)]
        stack += [source for source, _ in node.next_functions]
    below = _results_below([x.grad_fn for x in returned], edges)
    return tuple(
        tuple(k for k, x in enumerate(returned) if below[x.grad_fn] >> i & 1) for i in range(len(leaves))
    )


def parts(returned: Sequence[torch.Tensor], outside: set[Any]) -> tuple[int, ...]:
    """For each differentiable tensor, the number of its part of the autograd graph. Parts share no nodes except leaves
    and those in `outside`, so in eager a backward pass through one part frees nothing of another. Empty if there is
    only one part."""
    owner: dict[Any, int] = {}
    joined = list(range(len(returned)))  # union-find: the part it is merged into (a lower number), or itself
    for k, x in enumerate(returned):
        stack = [x.grad_fn]
        while stack:
            node = stack.pop()
            if node is None or node in outside or not node.next_functions:
                continue
            if node in owner:
                first, second = _root(joined, owner[node]), _root(joined, k)
                joined[max(first, second)] = min(first, second)
                continue
            owner[node] = k
            stack += [source for source, _ in node.next_functions]
    found = tuple(_root(joined, k) for k in range(len(returned)))
    return found if len(set(found)) > 1 else ()


def _root(joined: Sequence[int], k: int) -> int:
    while joined[k] != k:
        k = joined[k]
    return k
