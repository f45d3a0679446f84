"""The result of `id(obj)`.

The number differs between objects, so it is a constant only where the program computes with it, with a guard on it.
Comparisons with other ids, and ids as keys of dicts, need no guard on the number.
"""

from __future__ import annotations

import types

from ...core.source import CallSource
from ...core.trace_reliances import note_fact
from ..codegen import Codegen
from ..tracer import Tracer
from . import slots
from .base import NotConstant, Var
from .const import ConstVar

# Objects that may be created again at each read.
_MADE_BY_READS = (int, float, complex, str, bytes, tuple, types.MethodType, types.MethodWrapperType)


class IdVar(Var):
    """`id()` of the object that `var` represents. Arithmetic, and comparisons with numbers, need an object that existed
    before the frame."""

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
        if op in ("==", "!=") and isinstance(other, IdVar):
            return ConstVar(slots.identical(tx, self.var, other.var) == (op == "=="))
        return slots.compare(tx, op, self._number(tx, op), other)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        number = self._number(tx, op)
        return slots.binary(tx, op, other, number) if reflected else slots.binary(tx, op, number, other)

    def _number(self, tx: Tracer, what: str) -> Var:
        """The number of an object that existed before the frame, as a constant; a guard compares it."""
        source = self.var.source
        if source is None:
            return self.unsupported(tx, what)
        try:
            found = tx.existing(self.var)
        except NotConstant:
            return self.unsupported(tx, what)
        if isinstance(found, _MADE_BY_READS):
            return self.unsupported(tx, what)
        tx.guard(CallSource(source, id, "id"), "EQUALS", id(found))
        note_fact("the id() of an object")
        return ConstVar(id(found))

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(id)
        cg.call_top(lambda: cg.load(self.var))
