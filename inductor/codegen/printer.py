"""Prints sizes and indices as expressions of the languages in which kernels are written.

This is the last step: until here, an index is an expression (`schedule/index.py`).
"""

from __future__ import annotations

from typing import ClassVar

from ..ir.size import AnySize, Size, same
from ..schedule.index import Affine, FloorDiv, Index, Mod


class Printer:
    """Prints the sizes and indices of one kernel; `symbols` collects the names of the size symbols in them."""

    FLOORDIV: ClassVar[str]  # the operator that divides nonnegative integers and rounds down

    def __init__(self) -> None:
        self.symbols: set[str] = set()

    def size(self, size: AnySize) -> str:
        """The text of a size: a number, a name, or a sum in parentheses."""
        if isinstance(size, Size):
            self.symbols |= size.symbols()
        return str(size)  # valid in every language

    def index(self, index: Index) -> str:
        """The text of an index, without outer parentheses."""
        parts = []
        for operand, coef in index.terms:
            text = operand if isinstance(operand, str) else self._operand(operand)
            parts.append(text if same(coef, 1) else f"{self.size(coef)}*{text}")
        if not parts or not same(index.const, 0):
            parts.append(self.size(index.const))
        return " + ".join(parts)

    def _operand(self, operand: Affine | FloorDiv | Mod) -> str:
        if isinstance(operand, Affine):
            return f"({self.index(operand)})"
        operator = self.FLOORDIV if isinstance(operand, FloorDiv) else "%"
        return f"(({self.index(operand.base)}) {operator} {self.size(operand.divisor)})"


class CppPrinter(Printer):
    """Prints C++. Its division and modulus round to zero, which is the same for the nonnegative operands of indices."""

    FLOORDIV = "/"


class TritonPrinter(Printer):
    """Prints Triton, whose division of integers is that of C++ although it is written as in Python."""

    FLOORDIV = "//"
