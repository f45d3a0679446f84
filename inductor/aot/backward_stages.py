"""Divides a backward graph into stages, so that the first gradients are available before the last are computed.

Each stage is a graph of its own that computes the gradients of one bucket (see `gradient_buckets`), in the order in
which the backward produces them, and whatever else they need that no earlier stage has computed. `StagedBackward` runs
the compiled stages, all together or one at a time; `stage_nodes` calls them from autograd nodes of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..fx_utils.arguments import node_at, results_of
from .calls import call, copied
from .gradient_buckets import BucketSizes
from .memory import ancestors, is_random, roots, viewed

aten = torch.ops.aten


@dataclass(frozen=True)
class Stage:
    """One stage. Values are numbered: the arguments of the whole backward, then what stages pass on to later ones.

    `arguments`: the values that it takes; `last[k]`: no later stage takes arguments[k]. It returns `gradients` (by
    their position among the results of the whole backward), and then the values `passed`.
    """

    arguments: tuple[int, ...]
    last: tuple[bool, ...]
    gradients: tuple[int, ...]
    passed: tuple[int, ...]


@dataclass(frozen=True)
class Staging:
    """The stages of a backward in order. `values`: how many values they number; `results`: of the whole backward."""

    stages: tuple[Stage, ...]
    values: int
    results: int


def split_backward(
    backward: fx.GraphModule, bucketed: Sequence[bool], sizes: BucketSizes
) -> tuple[Staging, list[fx.GraphModule]] | None:
    """The stages of a backward and their graphs; None if all gradients fit into the first bucket. `bucketed[k]`:
    result k is the gradient of a parameter, which goes into a bucket. The graph must not write to its arguments."""
    groups = _groups(backward.graph, bucketed, sizes)
    if len(groups) == 1:
        return None
    return _Splitter(backward, groups).split()


def _groups(graph: fx.Graph, bucketed: Sequence[bool], sizes: BucketSizes) -> list[list[int]]:
    """The results of each stage, by position. A bucket is full when its size reaches the limit, as in DDP."""
    order = {node: k for k, node in enumerate(graph.nodes)}
    results = results_of(graph)
    places = [-1 if node is None else order[node] for node in results]
    produced = sorted(range(len(results)), key=places.__getitem__)
    groups: list[list[int]] = [[]]
    filled = 0
    for k in produced:
        limit = sizes.first if len(groups) == 1 else sizes.others
        if filled >= limit:
            groups.append([])
            filled = 0
        groups[-1].append(k)
        node = results[k]
        if bucketed[k] and node is not None:
            filled += node.meta["val"].numel() * node.meta["val"].element_size()
    return groups


class _Splitter:
    """Builds the graphs of the stages."""

    def __init__(self, backward: fx.GraphModule, groups: list[list[int]]) -> None:
        self.backward, self.groups = backward, groups
        self.results = results_of(backward.graph)
        self.root = roots(backward.graph)
        self.placeholders = list(backward.graph.find_nodes(op="placeholder"))
        self.stage_of: dict[fx.Node, int] = {}  # of each node that is needed: the first stage that needs it

    def split(self) -> tuple[Staging, list[fx.GraphModule]]:
        self._assign()
        members: list[list[fx.Node]] = [[] for _ in self.groups]
        for node in self.backward.graph.nodes:
            if node in self.stage_of and node.op != "placeholder":
                members[self.stage_of[node]].append(node)
        taken = [self._taken(stage, nodes) for stage, nodes in enumerate(members)]
        crossing = {x for nodes in taken for x in nodes if x.op != "placeholder"}
        number = {x: k for k, x in enumerate((*self.placeholders, *(x for x in self.stage_of if x in crossing)))}
        stages, graphs = [], []
        for k, nodes in enumerate(members):
            passed = [x for x in nodes if x in crossing]
            later = {x for each in taken[k + 1 :] for x in each}
            graphs.append(self._graph(k, nodes, taken[k], passed, crossing))
            stages.append(Stage(
                tuple(number[x] for x in taken[k]), tuple(x not in later for x in taken[k]),
                tuple(self._gradients(k)), tuple(number[x] for x in passed),
            ))  # fmt: skip
        return Staging(tuple(stages), len(number), len(self.results)), graphs

    def _gradients(self, stage: int) -> list[int]:
        return [k for k in self.groups[stage] if self.results[k] is not None]

    def _assign(self) -> None:
        """Find the stage of each node: the first one whose gradients depend on it. Random numbers are drawn in the
        order of the graph. Checks that only raise, and collectives without users, belong to the first stage in which
        their arguments exist."""
        draws = {x for x in self.backward.graph.nodes if is_random(x.target)}
        order = {node: k for k, node in enumerate(self.backward.graph.nodes)}
        for stage in range(len(self.groups)):
            wanted = [x for k in self._gradients(stage) if (x := self.results[k]) is not None]
            found = ancestors(wanted)
            drawn = [order[x] for x in found if x in draws]
            if drawn:
                found = found | ancestors([x for x in draws if order[x] <= max(drawn)])
            for node in self.backward.graph.nodes:
                if node in found or node.target is operator.getitem and self.stage_of.get(node_at(node)) == stage:
                    self.stage_of.setdefault(node, stage)  # an operator's results are taken apart where it runs
        for node in self.backward.graph.nodes:
            if node.op == "call_function" and node not in self.stage_of and node.is_impure():
                found = ancestors([node])
                stage = max((self.stage_of[x] for x in found if x in self.stage_of), default=0)
                for x in self.backward.graph.nodes:
                    if x in found:
                        self.stage_of.setdefault(x, stage)

    def _again(self, x: fx.Node, stage: int) -> bool:
        """Whether a value is computed again in a later stage instead of being passed on: a view, or a constant."""
        return x.op == "get_attr" or (viewed(x) is not None and self.stage_of[x] < stage)

    def _taken(self, stage: int, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """The values from outside that a stage takes."""
        found: dict[fx.Node, None] = {}
        wanted = [x for node in nodes for x in node.all_input_nodes]
        wanted += [x for k in self._gradients(stage) if (x := self.results[k]) is not None]
        seen: set[fx.Node] = set()
        while wanted:
            x = wanted.pop()
            if x in seen:
                continue
            seen.add(x)
            if x.op != "placeholder" and self.stage_of.get(x) == stage:
                continue
            if self._again(x, stage):
                wanted += x.all_input_nodes
            else:
                found[x] = None
        place = {x: k for k, x in enumerate(self.stage_of)}
        return sorted(found, key=lambda x: place.get(x, -1))

    def _graph(
        self, stage: int, nodes: Sequence[fx.Node], taken: Sequence[fx.Node], passed: Sequence[fx.Node],
        crossing: set[fx.Node],
    ) -> fx.GraphModule:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for x in taken:
            copies[x] = graph.placeholder(x.name)
            copies[x].meta = dict(x.meta)

        def copy_of(x: fx.Node) -> fx.Node:
            if x not in copies:  # a view or a constant of an earlier stage
                for source in x.all_input_nodes:
                    copy_of(source)
                copies[x] = copied(graph, x, copies.__getitem__)
            return copies[x]

        for node in nodes:
            for source in node.all_input_nodes:
                copy_of(source)
            copies[node] = copied(graph, node, copies.__getitem__)
        found = []
        for k in self._gradients(stage):
            gradient = self.results[k]
            assert gradient is not None
            own, root = copy_of(gradient), self.root[gradient]
            # the owner of a gradient may write to it while later stages still read what it shares memory with
            shared = root in crossing or self.stage_of[root] != stage
            found.append(call(graph, aten.clone.default, own) if shared else own)
        graph.output([*found, *(copies[x] for x in passed)])
        return fx.GraphModule(self.backward, graph)


class StagedBackward:
    """The compiled stages of a backward. Called as a whole, it does what the whole backward does. Each of `stages`
    takes a list of arguments, which it may empty."""

    def __init__(self, staging: Staging, stages: Sequence[Callable[[list[torch.Tensor]], list[torch.Tensor]]]) -> None:
        self.staging, self.stages = staging, stages

    def __call__(self, *given: torch.Tensor) -> list[torch.Tensor]:
        return self.take(list(given))

    def take(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients, from the arguments in a list, which it empties."""
        found: list[torch.Tensor | None] = [None] * self.staging.results
        run = self.begin(given)
        for stage in self.staging.stages:
            for k, x in zip(stage.gradients, run.advance()):
                found[k] = x
        return found  # type: ignore[return-value]  # each gradient belongs to a stage

    def begin(self, given: list[torch.Tensor]) -> StagedRun:
        """A run of the stages on these arguments, whose list is emptied."""
        run = StagedRun(self, given)
        given.clear()
        return run


class StagedRun:
    """One run of the stages, which are executed one by one."""

    def __init__(self, backward: StagedBackward, given: Sequence[torch.Tensor]) -> None:
        self.backward, self.done = backward, 0
        self.values: list[torch.Tensor | None] = [*given, *[None] * (backward.staging.values - len(given))]

    def advance(self) -> list[torch.Tensor]:
        """Run the next stage; returns its gradients, in the order of `Stage.gradients`."""
        stage, values = self.backward.staging.stages[self.done], self.values
        taken: list[Any] = [values[k] for k in stage.arguments]
        for k, last in zip(stage.arguments, stage.last):
            if last:
                values[k] = None
        results = self.backward.stages[self.done](taken)
        self.done += 1
        count = len(stage.gradients)
        for k, x in zip(stage.passed, results[count:]):
            values[k] = x
        return results[:count]

