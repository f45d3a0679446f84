"""Objects that the tracer has no model of: they can be passed on, every operation on them breaks the graph."""

from __future__ import annotations

from typing import Any

from .base import HeldVar


class OpaqueVar(HeldVar):
    __slots__ = ()

    def describe(self) -> str:
        return f"{self.source or 'a value'} of type {type(self.value).__qualname__}"

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)
