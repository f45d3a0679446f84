"""The plan of a graph that was compiled for many sizes, for given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.substitute import substitute_sizes
from .arena import plan_arena
from .plan_spec import Arena, PlanSpec, Slot, Step


def spec_at(spec: PlanSpec, values: Mapping[str, int]) -> PlanSpec:
    """`spec` for these values of its symbols, with its memory arena planned."""
    spec = substitute_sizes(spec, values)
    if not spec.ranges:
        return spec
    offsets, nbytes = plan_arena(spec.ranges)

    def placed(step: Step) -> Step:
        if isinstance(step, Arena):
            return Arena(nbytes)
        return replace(step, offset=offsets[step.buf]) if isinstance(step, Slot) else step

    return replace(spec, steps=tuple(map(placed, spec.steps)), ranges=())
