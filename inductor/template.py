"""A PlanSpec for many sizes as one for given sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .ir.size import settled
from .runtime.arena import plan_arena
from .runtime.plan_spec import Arena, PlanSpec, Slot, Step


def spec_at(spec: PlanSpec, values: Mapping[str, int]) -> PlanSpec:
    """`spec` where its symbols have these values, with its arena laid out."""
    spec = settled(spec, values)
    if not spec.ranges:
        return spec
    offsets, nbytes = plan_arena(spec.ranges)

    def placed(step: Step) -> Step:
        if isinstance(step, Arena):
            return Arena(nbytes)
        return replace(step, offset=offsets[step.buf]) if isinstance(step, Slot) else step

    return replace(spec, steps=tuple(map(placed, spec.steps)), ranges=())
