"""Objects that the tracer has no model of: they can be passed on, every operation on them breaks the graph."""

from __future__ import annotations

from typing import Any

from ..core.source import Source
from .base import Var


class OpaqueVar(Var):
    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"{self.source or 'a value'} of type {type(self.value).__qualname__}"

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)
