"""Predicts random draws, for programs that branch on them.

The new bytecode makes its draws after the guards (see `random_generators`).  A guard therefore makes the same draws on
copies of the generators to find out whether the program would take the captured branch.  After the real draws the frame
checks the outcome again, because another thread may have used the generators in between.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.expr import Tree, evaluate, sources, text
from ...core.source import DrawnSource, SeqItemSource, Source
from ..protocol.base import NotConstant
from .random_generators import MAX_VALUES, Draw, RngVar, known

MAX_OUTCOMES = 2  # of one capture: each may be a capture more


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A draw from the generator with this number among those of a guard."""

    generator: int
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class RngBranchGuard:
    """Whether `tree` of what is drawn is `outcome`: asked of the generators before, and of the values afterwards."""

    tree: Tree
    kind: type
    outcome: Any
    steps: tuple[_Step, ...]

    def __call__(self, *generators: Any) -> bool:
        return bool(predict_draw(self.tree, self.kind, self.steps, generators) == self.outcome)

    def check(self, *values: Any) -> None:
        """The same of what was drawn, `values` in the order of `sources(tree)`."""
        if self.kind(evaluate(self.tree, dict(zip(sources(self.tree), values, strict=True)))) != self.outcome:
            raise RuntimeError(
                f"a compiled function branches on {text(self.tree)}, and another thread has drawn from the same "
                "generator meanwhile. Give each thread a generator of its own, or take a lock around the call."
            )


def predict_draw(tree: Tree, kind: type, steps: Sequence[_Step], generators: Sequence[Any]) -> Any:
    """What `tree` is going to be, if `steps` are made next."""
    copies = [_copy(generator) for generator in generators]
    drawn = [step.fn(copies[step.generator], *step.args, **step.kwargs) for step in steps]
    return kind(evaluate(tree, {source: _read(source, drawn) for source in sources(tree)}))


def _copy(generator: Any) -> Any:
    if type(generator) is not random.Random:
        return copy.deepcopy(generator)
    other = random.Random.__new__(random.Random)
    other.setstate(generator.getstate())
    return other


def _read(source: Source, drawn: Sequence[Any]) -> Any:
    if isinstance(source, SeqItemSource):
        return _read(source.parent, drawn)[source.index]
    assert isinstance(source, DrawnSource)
    return drawn[source.index]


def _draw_of(source: Source) -> int | None:
    """The number of the draw that gives `source`, or what it is an item of; None for anything else."""
    while isinstance(source, SeqItemSource):
        source = source.parent
    return source.index if isinstance(source, DrawnSource) else None


def predict(tx: Any, tree: Tree, kind: type) -> Any:
    """What `kind(tree)` is in this call, guarded; None where that cannot be said, or would take a capture for each of
    many values."""
    numbers = [_draw_of(source) for source in sources(tree)]
    if not numbers or None in numbers or not _may(tx, tree, kind):
        return None
    made = _steps(tx.draws[: max(numbers) + 1])  # type: ignore[type-var, operator]
    if made is None:
        return None
    steps, generators = made
    outcome = predict_draw(tree, kind, steps, [each.value for each in generators])
    branch = RngBranchGuard(tree, kind, outcome, steps)
    first, *others = places = [each.source for each in generators]
    if others:
        tx.guard(None, "DISTINCT", tuple(places))
    tx.guard(first, "PREDICATE", (branch, tuple(others), f"{text(tree)} is going to be {outcome}"))
    tx.rng_branches.append(branch)
    return outcome


def _may(tx: Any, tree: Tree, kind: type) -> bool:
    """Whether another outcome may be a capture of its own."""
    if kind is int:
        bounds = tx.draws[tree.index].bounds if isinstance(tree, DrawnSource) else None
        if bounds is None or bounds[1] - bounds[0] >= MAX_VALUES:
            return False
    elif kind is not bool:
        return False
    if tx.options.fullgraph:
        return True
    return tx.graph.history.predicts_draws and tx.captures < tx.options.recompile_limit // 2


def _steps(draws: Sequence[Draw]) -> tuple[tuple[_Step, ...], list[RngVar]] | None:
    """The draws as they can be made again, and the generators that they are from; None if one cannot."""
    generators: list[RngVar] = []
    steps = []
    for draw in draws:
        rng, args = (draw.args[0] if draw.args else None), draw.args[1:]
        if not isinstance(rng, RngVar) or rng.source is None or _draw_of(rng.source) is not None or not draw.repeats:
            return None
        try:
            given, named = tuple(map(known, args)), {name: known(arg) for name, arg in draw.kwargs.items()}
        except NotConstant:
            return None
        if not any(rng is each for each in generators):
            generators.append(rng)
        steps.append(_Step(next(i for i, each in enumerate(generators) if each is rng), draw.fn, given, named))
    return tuple(steps), generators
