"""Computes gradients of one output of a compiled graph with respect to another one, as of `loss` with respect to `h` in
`h = g(x); return h, loss(h)`. (Nested tensors are something else.)

`levels.py` finds such outputs at compile time; this module acts at each call. In the compiled graph, which is one
autograd node, `loss` does not depend on `h`. So `loss` gets a second autograd node, whose inputs are the first node's
`loss` and `h`. If nothing can observe the gradient of `h` (no hook, no `retain_grad`, no `torch.autograd.grad`), the
second node only passes the gradient of `loss` on, and the compiled backward computes everything. Otherwise it runs the
captured graph in eager, for the gradients of `loss` with respect to `h` and, on paths that bypass `h`, with respect to
the inputs. The next call then compiles the graph in pieces that end at `h`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..log.warnings import warn_once
from .levels import Edge, Level
from .rerun import Rerun
from .tensor_hooks import watch_hooks

Maker = Callable[[Sequence[Any], Sequence[torch.Tensor]], Any]


class _Probe:
    """A leaf whose gradient is never used. The autograd engine runs its node in a backward pass that accumulates
    gradients into leaves, but not in one that was asked for certain gradients only."""

    def __init__(self) -> None:
        with torch.enable_grad():
            self.leaf = torch.zeros((), requires_grad=True)
            view: Any = self.leaf.view_as(self.leaf)
            self.node = view.grad_fn.next_functions[0][0]

    def asked_for_certain_gradients(self) -> bool:
        """Whether the running backward pass was asked for certain gradients only (`torch.autograd.grad`)."""
        return not torch._C._will_engine_execute_node(self.node)


class Nested:
    """Gives results that are computed from other results an autograd node of their own, at each call."""

    def __init__(
        self, found: Sequence[Level], makers: Sequence[Maker], views: Sequence[bool], rerun: Rerun,
        in_pieces: Callable[[], Callable[..., Any] | None] | None,
    ) -> None:
        """`makers`: a function for each flat result; `views`: which flat results are views of other tensors.
        `in_pieces` compiles the graph in pieces, which makes the extra nodes unnecessary."""
        self.makers, self.views, self.rerun = makers, views, rerun
        self.in_pieces = in_pieces
        self.asked = False
        self.pieces: Callable[..., Any] | None = None
        self.probe = _Probe()
        self.steps = [(level, self._apply(level)) for level in found]

    def __call__(self, primals: Sequence[Any], outputs: Sequence[torch.Tensor]) -> list[Any]:
        """The flat results of a call."""
        tensors, results = list(outputs), [None] * len(self.makers)
        for level, apply in self.steps:
            for i in level.sources:
                if results[i] is None:
                    results[i] = self.makers[i](primals, tensors)
            nodes = apply(self.probe.leaf, *[tensors[k] for k in level.returned], *[results[i] for i in level.sources])
            for k, x in zip(level.returned, nodes):
                tensors[k] = x
        return [make(primals, tensors) if x is None else x for make, x in zip(self.makers, results)]

    def compiled(self) -> Callable[..., Any] | None:
        """The graph compiled in pieces, each at its first call; None if it cannot be split."""
        if self.pieces is None and self.in_pieces is not None:
            self.pieces, self.in_pieces = self.in_pieces(), None
        return self.pieces

    def _apply(self, level: Level) -> Callable[..., Any]:
        count, views = len(level.returned), [self.views[i] for i in level.sources]
        nested = self

        class LaterResults(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, probe: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
                ctx.set_materialize_grads(False)
                # a view is kept alive, because hooks on it are not reported
                ctx.sources = [x if view else weakref.ref(x) for x, view in zip(given[count:], views)]
                return tuple([x.detach() for x in given[:count]])

            @staticmethod
            def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
                gradients = nested.gradients(ctx, level, tangents)
                if gradients is None:
                    return None, *tangents, *([None] * len(views))
                return None, *([None] * count), *gradients

        watch_hooks(LaterResults, record=True)
        return super(torch.autograd.Function, LaterResults).apply

    def gradients(
        self, ctx: Any, level: Level, tangents: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None] | None:
        """The gradients of the sources; None if nothing can observe one of them."""
        edges = ctx.next_functions[1 + len(tangents) :]
        alive = [x() if isinstance(x, weakref.ref) else x for x in ctx.sources]
        hooked = any(_has_hooks(x, edge) for x, edge in zip(alive, edges))
        # a gradient can be asked for only if its tensor is alive
        if not hooked and not (any(x is not None for x in alive) and self.probe.asked_for_certain_gradients()):
            return None
        self.asked = True
        try:
            below = ctx.next_functions[1][0]
            return self.rerun.part(getattr(below, "node", below), zip(level.returned, tangents), level.sources)
        except RuntimeError:
            if hooked:
                raise
        warn_once(
            "gradient of an intermediate result",
            "inductor: this backward pass does not compute the gradient of one result of a compiled graph with respect "
            "to another result of the same graph; from the next call of the graph on it is computed")
        return None


def _has_hooks(x: torch.Tensor | None, edge: Edge) -> bool:
    if x is not None and (x.retains_grad or x._backward_hooks):
        return True
    node, number = edge
    return any(hooks and number == n for n, hooks in getattr(node, "hook_dicts", ()))
