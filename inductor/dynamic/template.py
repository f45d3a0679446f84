"""Templates: graphs compiled for many sizes, and their instantiation for given sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ..aot.training_spec import TrainingSpec
from ..ir.settle import substitute_sizes
from ..ir.size import Program
from ..runtime.arena import plan_arena
from ..runtime.plan_spec import Arena, PlanSpec, Slot, Step


@dataclass(frozen=True)
class Template:
    """A graph compiled for many sizes; `make` gives what is called for the values of its symbols."""

    program: Program
    make: Callable[[Mapping[str, int]], Callable[..., Any]]

    def serves(self, values: Mapping[str, int]) -> bool:
        """Whether it is right where its symbols have these values."""
        return self.program.serves(self.program.values(values))

    def at(self, values: Mapping[str, int]) -> Callable[..., Any]:
        """It, for given values."""
        return self.make(self.program.values(values))


def spec_at(spec: PlanSpec, values: Mapping[str, int]) -> PlanSpec:
    """`spec` where its symbols have these values, with its arena laid out."""
    spec = substitute_sizes(spec, values)
    if not spec.ranges:
        return spec
    offsets, nbytes = plan_arena(spec.ranges)

    def placed(step: Step) -> Step:
        if isinstance(step, Arena):
            return Arena(nbytes)
        return replace(step, offset=offsets[step.buf]) if isinstance(step, Slot) else step

    return replace(spec, steps=tuple(map(placed, spec.steps)), ranges=())


def training_spec_at(spec: TrainingSpec, values: Mapping[str, int]) -> TrainingSpec:
    """The same for what is known of a forward and its backward."""
    parts = {f.name: getattr(spec, f.name) for f in fields(spec) if f.name != "structure"}
    return TrainingSpec(**substitute_sizes(parts, values), structure=spec.structure)
