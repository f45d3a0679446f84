"""Gives each stage of a backward an autograd node of its own, so that autograd passes gradients on between stages.

    results ── CompiledGraph ─┬── parameters of the first stage
                              └── BackwardStage ─┬── parameters of the second stage
                                                 └── BackwardStage ── ...

A node hands out the gradients of its stage; autograd accumulates them, and calls the hooks on the parameters, before
it calls the next node. DDP's hooks start to send a bucket in this way while later stages still run. The nodes are
connected by tensors without elements.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .backward_stages import StagedRun, Staging
from .result_groups import Gradients, function_apply
from .tensor_hooks import watch_hooks
from .training_spec import Gradient, TrainingSpec

_task = torch._C._current_graph_task_id
_will_run = torch._C._will_engine_execute_node  # type: ignore[attr-defined, unused-ignore]

Found = Gradients | StagedRun
# (ctx, tangents, last) -> the gradients of all inputs, or a run of the stages that computes them
StagedGradientsOf = Callable[[Any, Sequence[torch.Tensor | None], bool], Found]


@dataclass
class _Pass:
    """A backward pass. `users`: how many nodes have not run. `absent`: the numbers of the undefined tangents."""

    found: Found
    users: int
    absent: frozenset[int]


@dataclass
class _Call:
    """What the nodes of one call share."""

    lower: list[weakref.ref[Any]] = field(default_factory=list)
    passes: dict[int, _Pass] = field(default_factory=dict)


class StageNodes:
    """Runs the graph and makes the autograd nodes of its stages, at each call: a function of the graph's inputs."""

    def __init__(
        self, forward_of: Callable[..., Any], gradients_of: StagedGradientsOf, spec: TrainingSpec, staging: Staging
    ) -> None:
        self.gradients_of, self.differentiable = gradients_of, len(spec.tangents)
        self.gradients = [[spec.gradients[k] for k in stage.gradients] for stage in staging.stages]
        self.places = [tuple(gradient.place for gradient in each) for each in self.gradients]
        self.device = spec.tangents[0].device
        self.link = torch.empty(0, device=self.device)
        self.graph, self.stage = function_apply(self._graph(forward_of)), function_apply(self._stage())
        self.single = len(spec.origins) == 1

    def __call__(self, *primals: Any) -> tuple[torch.Tensor, ...]:
        call, link = _Call(), None
        for stage in range(len(self.places) - 1, 0, -1):  # autograd runs the nodes made last first
            link = self.stage(call, stage, link, *[primals[i] for i in self.places[stage]])
            if link.grad_fn is not None:
                call.lower.append(weakref.ref(link.grad_fn))
        return self.graph(call, primals, link, *[primals[i] for i in self.places[0]])

    def _begin(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        """The gradients of the first stage."""
        call, found = ctx.call, self.gradients_of(ctx, tangents, True)
        nodes = [node() for node in call.lower]
        users = sum(node is not None and _will_run(node) for node in nodes)
        absent = frozenset(k for k, x in enumerate(tangents) if x is None)
        now = _Pass(found, users, absent)
        if users:
            call.passes[_task()] = now
        return self._advance(now, 0)

    def _next(self, ctx: Any) -> Gradients:
        """The gradients of a later stage."""
        passes, task = ctx.call.passes, _task()
        now = passes[task]
        now.users -= 1
        if not now.users:
            del passes[task]
        return self._advance(now, ctx.number)

    def _advance(self, now: _Pass, stage: int) -> Gradients:
        found = now.found
        if not isinstance(found, StagedRun):
            return tuple([found[i] for i in self.places[stage]])
        gradients = zip(self.gradients[stage], found.advance())
        return tuple([_as_input_gradient(x, gradient, now.absent) for gradient, x in gradients])

    def _graph(self, forward_of: Callable[..., Any]) -> type[torch.autograd.Function]:
        nodes, differentiable = self, self.differentiable

        class CompiledGraph(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, call: _Call, primals: Sequence[Any], link: Any, *_: torch.Tensor) -> Any:
                ctx.call = call
                return forward_of(ctx, *primals)

            @staticmethod
            def backward(ctx: Any, *tangents: torch.Tensor | None) -> Any:
                return None, None, nodes.link, *nodes._begin(ctx, tangents[:differentiable])

        watch_hooks(CompiledGraph)
        return CompiledGraph

    def _stage(self) -> type[torch.autograd.Function]:
        nodes = self

        class BackwardStage(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, call: _Call, number: int, link: Any, *_: torch.Tensor) -> torch.Tensor:
                ctx.set_materialize_grads(False)
                ctx.call, ctx.number, ctx.last = call, number, link is None
                return torch.empty(0, device=nodes.device)

            @staticmethod
            def backward(ctx: Any, *_: torch.Tensor | None) -> Any:
                return None, None, None if ctx.last else nodes.link, *nodes._next(ctx)

        return BackwardStage


def _as_input_gradient(x: torch.Tensor, gradient: Gradient, absent: frozenset[int]) -> torch.Tensor | None:
    """What autograd gets as a gradient, from the result of a backward; see `_Gradients` in `autograd`."""
    if absent and absent.issuperset(gradient.tangents):
        return None
    return x.conj() if gradient.conjugated else x
