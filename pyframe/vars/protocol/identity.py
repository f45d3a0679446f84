"""`id(obj)`: a number that only tells objects apart."""

from __future__ import annotations

from typing import Any

from ...core.tracer import Tracer
from . import slots
from .base import Var
from .const import ConstVar


class IdVar(Var):
    """The identity of the object of `var`; it can be compared with others, and be a key."""

    __slots__ = ("attrs", "var")

    def __init__(self, var: Var) -> None:
        super().__init__()
        self.var = var
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"id() of {self.var.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_(self, tx: Tracer) -> Var | None:
        value = slots.constant_or(self.var, None)
        return ConstVar(hash(value) if isinstance(value, int | str | float | bytes) else id(value or self.var))

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if op not in ("==", "!=") or not isinstance(other, IdVar):
            return self.unsupported(tx, op)
        return ConstVar(slots.identical(tx, self.var, other.var) == (op == "=="))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        return self.unsupported(tx, op)

    def reconstruct(self, cg: Any) -> None:
        cg.load_const(id)
        cg.call_top(lambda: cg.load(self.var))
