"""The NULL that CPython's bytecode pushes on the stack next to a callable, as a Var."""

from __future__ import annotations

from ..codegen import Codegen
from .base import Var


class NullVar(Var):
    """The class of the singleton `NULL`."""

    __slots__ = ()

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit("PUSH_NULL")


NULL = NullVar()


def is_null(var: Var) -> bool:
    """Whether a stack slot holds NULL."""
    return var is NULL
