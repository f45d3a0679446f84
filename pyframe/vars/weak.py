"""Weak references: calling one gives the object it leads to, guarded through the reference."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.source import CallSource
from ..core.tracer import Tracer
from .base import HeldVar, Var


class WeakRefVar(HeldVar):
    __slots__ = ()

    value: weakref.ReferenceType[Any]

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        value = self.value()
        if any(tx.existing(var) is value for var in tx.let_go):
            tx.graph_break("unsupported-object", "a weak reference to an object that a deleted local had")
        return tx.wrap(value, CallSource(self.source, follow, "deref") if self.source else None)

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(self.value)


def follow(reference: weakref.ReferenceType[Any]) -> Any:
    """The object, or None once it is gone."""
    return reference()
