"""The result of `id(obj)`.

The number itself differs between calls, so it is not a constant: it can only be compared with other ids and used as a
dict key.
"""

from __future__ import annotations

from ..codegen import Codegen
from ..tracer import Tracer
from . import slots
from .base import Var
from .const import ConstVar


class IdVar(Var):
    """`id()` of the object that `var` represents.  Supports `==`, `!=` with another IdVar, and `hash`."""

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

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(id)
        cg.call_top(lambda: cg.load(self.var))
