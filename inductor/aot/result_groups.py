"""Gives groups of a graph's results autograd nodes of their own if they depend on different inputs.

For autograd, a compiled graph is normally one node, whose results depend on all of its inputs. A backward pass from
`z` in `y, z = f(a, b), g(b)` would then also run the history and the hooks of `a`, with undefined gradients. Where that
makes a difference, the graph becomes several nodes:

    result y ── ResultGroup {y} ─┬── CompiledGraph ── inputs on which all results depend (here b)
    result z ── ResultGroup {z} ─┘
    ResultGroup {y} ── InputGroup {a} ── a

Results are in one group if they depend on the same inputs, inputs are in one group if the same results depend on them.
A result group is connected to the input groups on which it depends, so a backward pass reaches the inputs that it would
reach in eager. The compiled backward runs once per pass: the first of the lower nodes that runs calls it with the
gradients of all results and leaves the gradients of the other inputs for the other nodes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .tensor_hooks import watch_hooks
from .training_spec import TrainingSpec

Gradients = tuple[torch.Tensor | None, ...]
# (ctx, tangents, last) -> the gradients of all inputs. `ctx` is the node of the graph, `last`: this backward pass does
# not need the saved tensors again.
GradientsOf = Callable[[Any, Sequence[torch.Tensor | None], bool], Gradients]

_task = torch._C._current_graph_task_id
_will_run = torch._C._will_engine_execute_node  # type: ignore[attr-defined, unused-ignore]


@dataclass(frozen=True)
class Groups:
    """`results`: the numbers of the returned tensors in each group. `inputs`: for each group of inputs, the numbers of
    the returned tensors that depend on them, and the positions of these inputs. Inputs on which all results depend are
    in no group."""

    results: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @property
    def places(self) -> tuple[int, ...]:
        """The inputs that are in a group."""
        return tuple(sorted(place for _, places in self.inputs for place in places))


def groups_of(spec: TrainingSpec) -> Groups | None:
    """The groups of a graph; None if all results depend on the same inputs. Also None if the results are on several
    devices, because autograd runs nodes of different devices in threads of their own, in no fixed order."""
    count = len(spec.tangents)
    inputs: dict[tuple[int, ...], list[int]] = {}
    for gradient in spec.gradients:
        if len(gradient.tangents) < count:
            inputs.setdefault(tuple(gradient.tangents), []).append(gradient.place)
    if not inputs or len({layout.device for layout in spec.tangents}) > 1:
        return None
    results: dict[tuple[int, ...], list[int]] = {}
    for k in range(count):
        results.setdefault(tuple(n for n, numbers in enumerate(inputs) if k in numbers), []).append(k)
    return Groups(tuple(map(tuple, results.values())), tuple((k, tuple(places)) for k, places in inputs.items()))


def function_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` without what it does for function transforms, under which compiled graphs do not run."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]  # not in torch's stubs


def per_group(
    apply: Callable[..., Any], forward_of: Callable[..., Any], gradients_of: GradientsOf, spec: TrainingSpec,
    groups: Groups, unreached: frozenset[int],
) -> Callable[..., Any]:
    """`apply`, which makes one autograd node, unless a backward pass that reaches only some results could be seen to
    reach too many inputs: if an input in a group has a history or hooks."""
    grouped = _Grouped(forward_of, gradients_of, spec, groups, unreached)
    places = groups.places

    def call(*primals: Any) -> Any:
        for i in places:
            x = primals[i]
            if x.grad_fn is not None or x._backward_hooks or x._post_accumulate_grad_hooks:
                return grouped(primals)
        return apply(*primals)

    return call


@dataclass
class _Pass:
    """A backward pass that is running. `tangents`: the gradients of results that are known by now. `found`: the
    gradients of the inputs, if they have been computed. `users`: how many nodes have not taken theirs."""

    tangents: dict[int, torch.Tensor | None] = field(default_factory=dict)
    found: list[torch.Tensor | None] | None = None
    users: int = 0


def _running(nodes: Sequence[weakref.ref[Any]]) -> list[Any]:
    """Those of some autograd nodes that exist and take part in the running backward pass."""
    alive = [node() for node in nodes]
    return [node for node in alive if node is not None and _will_run(node)]


class _Grouped:
    """Runs the graph and makes autograd nodes for its groups, at each call."""

    def __init__(
        self, forward_of: Callable[..., Any], gradients_of: GradientsOf, spec: TrainingSpec, groups: Groups,
        unreached: frozenset[int],
    ) -> None:
        self.groups, self.differentiable, self.unreached = groups, len(spec.tangents), unreached
        self.gradients_of, self.nested = gradients_of, bool(spec.nested)
        self.own = tuple(g.place for g in spec.gradients if len(g.tangents) == self.differentiable)
        self.leaf = torch.zeros((), requires_grad=True)  # makes a node of the graph even if it has no other input
        self.graph = function_apply(self._graph(forward_of))
        self.inputs = function_apply(self._input_group())
        self.results = function_apply(self._result_group())

    def __call__(self, primals: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        reached = [x.detach() if i in self.unreached else x for i, x in enumerate(primals)]
        outputs = self.graph(self.leaf, reached, *[reached[i] for i in self.own])
        node = outputs[0].grad_fn
        lower = [
            self.inputs(node, numbers, places, outputs, *[reached[i] for i in places])
            for numbers, places in self.groups.inputs
        ]
        tensors = list(outputs)
        node.lower, node.above = [weakref.ref(aliases[0].grad_fn) for aliases in lower], []
        for group in self.groups.results:
            above = [
                (numbers, aliases)
                for (numbers, _), aliases in zip(self.groups.inputs, lower)
                if group[0] in numbers
            ]
            edges = [aliases[numbers.index(k)] for numbers, aliases in above for k in group]
            found = self.results(node, group, *[outputs[k] for k in group], *edges)
            for k, x in zip(group, found):
                tensors[k] = x
            node.above.append(weakref.ref(found[0].grad_fn))
        return tuple(tensors)

    def gradients(self, node: Any, known: dict[int, torch.Tensor | None], places: Sequence[int]) -> Gradients:
        """The gradients of some inputs in the running backward pass. `known`: the gradients of the results that depend
        on them. `node`: the node of the graph."""
        task = _task()
        now = node.passes.setdefault(task, _Pass())
        if now.found is None:
            above = _running(node.above)
            if not all(k in now.tangents for x in above for k in x.numbers):
                # a node that gets only undefined gradients may run later; one that is only asked for its own, never
                if not _will_run(node):
                    del node.passes[task]
                found = self.gradients_of(node, [known.get(k) for k in range(self.differentiable)], False)
                return tuple([found[i] for i in places])
            given = [now.tangents.get(k) for k in range(self.differentiable)]
            now.found = list(self.gradients_of(node, given, True))
            now.users = len(_running(node.lower)) + _will_run(node)
        now.users -= 1
        if not now.users:
            del node.passes[task]
        taken = tuple([now.found[i] for i in places])
        for i in places:
            now.found[i] = None
        return taken

    def _graph(self, forward_of: Callable[..., Any]) -> type[torch.autograd.Function]:
        grouped, own, differentiable = self, self.own, self.differentiable

        class CompiledGraph(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, leaf: torch.Tensor, primals: Sequence[Any], *_: torch.Tensor) -> Any:
                ctx.passes = {}
                return forward_of(ctx, *primals)

            @staticmethod
            def backward(ctx: Any, *tangents: torch.Tensor | None) -> Gradients:
                return None, None, *grouped.gradients(ctx, dict(enumerate(tangents[:differentiable])), own)

        return CompiledGraph

    def _input_group(self) -> type[torch.autograd.Function]:
        grouped, nested = self, self.nested

        class InputGroup(torch.autograd.Function):
            @staticmethod
            def forward(
                ctx: Any, node: Any, numbers: Sequence[int], places: Sequence[int], outputs: Sequence[torch.Tensor],
                *_: torch.Tensor,
            ) -> tuple[torch.Tensor, ...]:
                ctx.set_materialize_grads(False)
                ctx.node, ctx.numbers, ctx.places = node, numbers, places
                return tuple([outputs[k].detach() for k in numbers])

            @staticmethod
            def backward(ctx: Any, *tangents: torch.Tensor | None) -> Gradients:
                if not nested and all(x is None for x in tangents):
                    return (None,) * (4 + len(ctx.places))
                known = dict(zip(ctx.numbers, tangents))
                return None, None, None, None, *grouped.gradients(ctx.node, known, ctx.places)

        return InputGroup

    def _result_group(self) -> type[torch.autograd.Function]:
        class ResultGroup(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, node: Any, numbers: Sequence[int], *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
                ctx.set_materialize_grads(False)
                ctx.node, ctx.numbers, ctx.edges = node, numbers, len(given) // len(numbers)
                return tuple([x.detach() for x in given[: len(numbers)]])

            @staticmethod
            def backward(ctx: Any, *tangents: torch.Tensor | None) -> Gradients:
                ctx.node.passes.setdefault(_task(), _Pass()).tangents.update(zip(ctx.numbers, tangents))
                return None, None, *(tangents * ctx.edges)

        watch_hooks(ResultGroup, record=self.nested)
        return ResultGroup
