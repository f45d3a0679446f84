"""Determines how autograd connects the outputs and inputs of a traced forward, because the compiled forward, a single
autograd node, hides it. `joint.py` calls this at compile time; the answers let later calls behave like eager:

- `levels`: the outputs that autograd computes from other outputs, as `loss` in `h = g(x); return h, loss(h)`. The
  outputs of one level depend only on earlier levels; `nested.py` gives each level an autograd node of its own.
- `conflicts`: which outputs share saved tensors, so a backward pass through one frees what the other needs.
- `reaching`: the outputs connected to each input; if none of these gets a gradient, the input's gradient is None.

The autograd graph is walked once (`AutogradGraph.of`), because each access to an attribute of an autograd node creates
new Python objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx.traceback

Edge = tuple[Any, int]  # an autograd node, and the number of one of its outputs
OWN_BACKWARD = "own_backward"  # key in a node's meta["custom"]: number of the `autograd.Function` that computes it


@dataclass(frozen=True)
class Level:
    """A set of returned tensors, `returned` (their numbers), none of which is computed from another one of the set.
    `sources`: the numbers of the flat results from which autograd computes them, directly or indirectly."""

    returned: tuple[int, ...]
    sources: tuple[int, ...]


@dataclass(frozen=True)
class AutogradGraph:
    """The autograd nodes from which differentiable tensors are computed.

    `roots`: the node of each tensor. `edges`: for each node its incoming edges, None where it has none; a node comes
    after the nodes it is computed from. `undefined`: see `watch_undefined`.
    """

    roots: tuple[Any, ...]
    edges: dict[Any, tuple[Edge | None, ...]]
    undefined: set[tuple[Any, int]] = field(default_factory=set)

    @staticmethod
    def of(returned: Sequence[torch.Tensor]) -> AutogradGraph:
        """The autograd graph behind `returned`, by an iterative depth-first walk."""
        roots: tuple[Any, ...] = tuple(x.grad_fn for x in returned)
        edges: dict[Any, tuple[Edge | None, ...]] = {}
        found: dict[Any, tuple[Edge | None, ...]] = {}
        stack = list(roots)
        while stack:
            node = stack[-1]
            if node in edges:
                stack.pop()
                continue
            if node in found:  # all of its sources have been added
                edges[node] = found[node]
                stack.pop()
                continue
            given = found[node] = tuple((x, n) if x is not None else None for x, n in node.next_functions)
            stack += [edge[0] for edge in given if edge is not None and edge[0] not in edges]
        return AutogradGraph(roots, edges)

    def watch_undefined(self) -> None:
        """Collect in `undefined` the edges (node, number of the edge) to which the node's backward, in the backward
        pass that follows, gives no gradient, as that of an `autograd.Function` that returns None."""
        for node, edges in self.edges.items():
            if edges:
                node.register_hook(_undefined_edges(self.undefined, node))

    def mark_own(self, outside: set[Any]) -> tuple[int, ...]:
        """For each node that is not in `outside` and belongs to an `autograd.Function` written in Python, the numbers
        of the roots that are computed from it, as a bit set. What these nodes compute in the backward pass that follows
        is marked with OWN_BACKWARD and the node's number."""
        python = torch.autograd.function.BackwardCFunction
        own = [node for node in self.edges if isinstance(node, python) and node not in outside]
        if not own:
            return ()
        for number, node in enumerate(own):
            node.register_prehook(_start_of_own(number))
            node.register_hook(_end_of_own)
        above = self.roots_above()
        return tuple(above[node] for node in own)

    def roots_above(self) -> dict[Any, int]:
        """For each node, the numbers of the roots that are computed from it, as a bit set."""
        above = dict.fromkeys(self.edges, 0)
        for k, root in enumerate(self.roots):
            above[root] |= 1 << k
        for node, edges in reversed(self.edges.items()):
            for edge in edges:
                if edge is not None:
                    above[edge[0]] |= above[node]
        return above


def _start_of_own(number: int) -> Callable[[Any], None]:
    def hook(_: Any) -> None:
        torch.fx.traceback.current_meta["custom"] = {OWN_BACKWARD: number}  # make_fx copies it to each node

    return hook


def _end_of_own(*_: Any) -> None:
    torch.fx.traceback.current_meta.pop("custom", None)


def _undefined_edges(found: set[tuple[Any, int]], node: Any) -> Any:
    def hook(gradients: Sequence[torch.Tensor | None], given: Sequence[torch.Tensor | None]) -> None:
        found.update((node, i) for i, gradient in enumerate(gradients) if gradient is None)

    return hook


def levels(graph: AutogradGraph, results: Sequence[tuple[torch.Tensor | None, int | None]]) -> list[Level]:
    """The levels of the differentiable returned tensors; each level is computed from results of earlier levels.

    `results`: for each flat result, the tensor (None if autograd does not connect it to anything), and the number of
    the returned tensor that it is or is a view of (None for a view of an input).
    """
    at: dict[Edge, int] = {}  # the results at each edge, as a bit set of their numbers
    for i, (x, _) in enumerate(results):
        if x is not None and x.grad_fn is not None:
            place = x.grad_fn, x.output_nr
            at[place] = at.get(place, 0) | 1 << i
    if not at:
        return []
    below: dict[Any, int] = {}  # the results that each node is computed from
    for node, edges in graph.edges.items():
        bits = 0
        for edge in edges:
            if edge is not None:
                bits |= below[edge[0]] | at.get(edge, 0)
        below[node] = bits
    found: dict[int, list[int]] = {}
    for k, root in enumerate(graph.roots):
        bits = below[root]
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


def reaching(graph: AutogradGraph, leaves: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """For each of `leaves` the numbers of the returned tensors that autograd connects to it, not counting edges that
    are known to get no gradient."""
    numbers = {id(x): i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)}
    below: dict[Any, int] = {}  # the leaves that each node is computed from, as a bit set
    for node, edges in graph.edges.items():
        # of a node that accumulates the gradient of a leaf
        variable = None if edges else getattr(node, "variable", None)
        bits = 1 << numbers[id(variable)] if id(variable) in numbers else 0
        for i, edge in enumerate(edges):
            if edge is not None and (node, i) not in graph.undefined:
                bits |= below[edge[0]]
        below[node] = bits
    reached = [below[root] for root in graph.roots]
    return tuple(tuple(k for k, bits in enumerate(reached) if bits >> i & 1) for i in range(len(leaves)))


def conflicts(graph: AutogradGraph, outside: set[Any]) -> tuple[tuple[int, ...], ...]:
    """For each returned tensor, the numbers of those, itself included, whose backward passes free saved tensors that
    its own needs, if the graph is not retained. Saved tensors of leaves and of nodes in `outside` do not count. Empty
    if every backward pass frees something that each of the others needs."""
    below: dict[Any, int] = {}  # the nodes with saved tensors that each node is computed from, itself included
    count = 0
    for node, edges in graph.edges.items():
        bits = 0
        if node not in outside:
            for edge in edges:
                if edge is not None:
                    bits |= below[edge[0]]
            if edges and _saves(node):
                bits |= 1 << count
                count += 1
        below[node] = bits
    needed = [below[root] for root in graph.roots]
    found = tuple(tuple(k for k, bits in enumerate(needed) if bits & own) for own in needed)
    return found if any(len(numbers) < len(needed) for numbers in found) else ()


def saves_nothing(returned: torch.Tensor, outside: set[Any]) -> bool:
    """Whether no autograd node behind a tensor has saved tensors, so that any number of backward passes can run."""
    seen, stack = set(outside), [returned.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        edges = node.next_functions
        if edges and _saves(node):
            return False
        stack += [source for source, _ in edges]
    return True


def _saves(node: Any) -> bool:
    """Whether an autograd node has saved tensors."""
    kind: Any = type(node)
    saved = [getattr(node, name) for name in _saved_attributes(kind)]
    return any(bool(each) if isinstance(each, tuple | list) else each.data is not None for each in saved)


@functools.cache
def _saved_attributes(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved"))
