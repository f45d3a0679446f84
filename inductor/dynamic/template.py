"""Templates: graphs compiled for many sizes, and their instantiation for given sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..aot.training_spec import TrainingSpec
from ..ir.size import Program
from ..ir.substitute import substitute_sizes


@dataclass(frozen=True)
class Template:
    """A graph compiled for many sizes; `make` returns the callable for given values of its symbols."""

    program: Program
    make: Callable[[Mapping[str, int]], Callable[..., Any]]

    def serves(self, values: Mapping[str, int]) -> bool:
        """Whether the compiled graph is valid for these values of its symbols."""
        return self.program.serves(self.program.values(values))

    def at(self, values: Mapping[str, int]) -> Callable[..., Any]:
        """The callable for these values of its symbols."""
        return self.make(self.program.values(values))


def training_spec_at(spec: TrainingSpec, values: Mapping[str, int]) -> TrainingSpec:
    """`spec` for these values of its symbols."""
    parts = {f.name: getattr(spec, f.name) for f in fields(spec) if f.name != "structure"}
    return TrainingSpec(**substitute_sizes(parts, values), structure=spec.structure)
