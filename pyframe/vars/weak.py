"""Weak references: calling one gives the object it leads to, guarded through the reference."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.source import CallSource, Source
from ..core.tracer import Tracer
from .base import Var


class WeakRefVar(Var):
    __slots__ = ("value",)

    def __init__(self, value: weakref.ReferenceType[Any], source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.wrap(self.value(), CallSource(self.source, follow, "deref") if self.source else None)

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)


def follow(reference: weakref.ReferenceType[Any]) -> Any:
    """The object, or None once it is gone."""
    return reference()
