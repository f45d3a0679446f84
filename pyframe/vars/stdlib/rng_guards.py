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
from ..tracer import Tracer
from .random_generators import MAX_VALUES, Draw, RngVar, known

MAX_OUTCOMES = 2  # branches per capture: each may need another capture


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A draw to repeat; `generator` is the index of its generator among those of the guard."""

    generator: int
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class RngBranchGuard:
    """Whether the expression `tree` of the drawn values equals `outcome`.

    As a guard it is called with the generators before the draws; `check` tests the drawn values afterwards.
    """

    tree: Tree
    kind: type
    outcome: Any
    steps: tuple[_Step, ...]

    def __call__(self, *generators: Any) -> bool:
        return bool(predict_draw(self.tree, self.kind, self.steps, generators) == self.outcome)

    def check(self, *values: Any) -> None:
        """Raise RuntimeError unless the drawn values, in the order of `sources(tree)`, give the same outcome."""
        if self.kind(evaluate(self.tree, dict(zip(sources(self.tree), values, strict=True)))) != self.outcome:
            raise RuntimeError(
                f"a compiled function branches on {text(self.tree)}, and another thread has drawn from the same "
                "generator meanwhile. Give each thread its own generator, or take a lock around the call."
            )


def predict_draw(tree: Tree, kind: type, steps: Sequence[_Step], generators: Sequence[Any]) -> Any:
    """The value that `tree` will have if `steps` are the next draws."""
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
    """The index of the draw that `source` is the result of, or an item of the result; None for anything else."""
    while isinstance(source, SeqItemSource):
        source = source.parent
    return source.index if isinstance(source, DrawnSource) else None


def predict(tx: Tracer, tree: Tree, kind: type) -> Any:
    """The value of `kind(tree)` in this call, guarded.  None if it cannot be predicted, or if its many possible values
    would need a capture each."""
    numbers = [_draw_of(source) for source in sources(tree)]
    if not numbers or None in numbers or not _may(tx, tree, kind):
        return None
    found = _steps(tx.draws[: max(numbers) + 1])  # type: ignore[type-var, operator]
    if found is None:
        return None
    steps, generators = found
    outcome = predict_draw(tree, kind, steps, [each.value for each in generators])
    branch = RngBranchGuard(tree, kind, outcome, steps)
    first, *others = places = [each.source for each in generators]
    if others:
        tx.guard(None, "DISTINCT", tuple(places))
    tx.guard(first, "PREDICATE", (branch, tuple(others), f"{text(tree)} will be {outcome} for the next draws"))
    tx.rng_branches.append(branch)
    return outcome


def _may(tx: Tracer, tree: Tree, kind: type) -> bool:
    """Whether each outcome may get its own capture: few possible values, and enough captures left."""
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
    """The draws in a form that can be repeated, and their generators; None if a draw cannot be repeated."""
    generators: list[RngVar] = []
    steps = []
    for draw in draws:
        rng, args = (draw.args[0] if draw.args else None), draw.args[1:]
        if not isinstance(rng, RngVar) or rng.source is None or _draw_of(rng.source) is not None or not draw.repeats:
            return None
        try:
            values, named = tuple(map(known, args)), {name: known(arg) for name, arg in draw.kwargs.items()}
        except NotConstant:
            return None
        if not any(rng is each for each in generators):
            generators.append(rng)
        steps.append(_Step(next(i for i, each in enumerate(generators) if each is rng), draw.fn, values, named))
    return tuple(steps), generators
