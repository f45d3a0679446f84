"""Objects of types that the tracer does not model.

They can be stored, passed on and returned.  Any other operation on them breaks the graph.
"""

from __future__ import annotations

from ..codegen import Codegen
from ..tracer import Tracer
from . import dunder
from .base import HeldVar, Var


class OpaqueVar(HeldVar):
    """An object of a type that the tracer does not model."""

    __slots__ = ()

    def describe(self) -> str:
        return f"{self.source or 'a value'} of type {type(self.value).__qualname__}"

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        name = dunder.comparison(op)
        own = getattr(type(self.value), name) is not getattr(object, name)
        return self.unsupported(tx, f"comparing with {op}") if own else None

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        own = hasattr(type(self.value), dunder.name_of(op, reflected))
        return self.unsupported(tx, f"operator {op}") if own else None

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)
