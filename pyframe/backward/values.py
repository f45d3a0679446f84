"""Placeholders for numbers that are arguments of a program: the engine computes with them while it describes a backward
pass, and each remembers the Python expression of its value."""

from __future__ import annotations

import builtins
from typing import Any

import torch

from .errors import Uncapturable


class Number:
    """What a `torch.SymInt` or `torch.SymFloat` refers to as its node: an expression in the program's source.

    `hint` is the value in the backward pass that is being recorded. torch calls the methods from C++. A number that is
    compared, or asked for its value, raises `Uncapturable`: the next pass would be described in another way.
    """

    def __init__(self, text: builtins.str, hint: int | float) -> None:
        self.text, self.hint = text, hint

    def is_int(self) -> bool:
        return isinstance(self.hint, int)

    def is_float(self) -> bool:
        return isinstance(self.hint, float)

    def is_bool(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def constant_int(self) -> int | None:
        return None

    def nested_int(self) -> int | None:
        return None

    def clone(self) -> Number:
        return self

    def str(self) -> builtins.str:
        return self.text

    def wrap_int(self, value: int) -> Number:
        return Number(repr(value), value)

    def wrap_float(self, value: float) -> Number:
        return Number(repr(value), value)

    def guard_int(self, file: builtins.str, line: int) -> int:
        return self._decided()

    expect_size = guard_int

    def add(self, other: Number) -> Number:
        return self._combined("+", other, self.hint + other.hint)

    def sub(self, other: Number) -> Number:
        return self._combined("-", other, self.hint - other.hint)

    def mul(self, other: Number) -> Number:
        return self._combined("*", other, self.hint * other.hint)

    def _combined(self, sign: builtins.str, other: Number, hint: int | float) -> Number:
        return Number(f"({self.text} {sign} {other.text})", hint)

    def _decided(self, *_: Any) -> Any:
        raise Uncapturable("the structure of the backward pass depends on a size")

    eq = ne = lt = le = gt = ge = _decided


def symbol(text: str, value: int | float) -> torch.SymInt | torch.SymFloat:
    """A placeholder for the number that the expression `text` has in the program."""
    return torch.SymInt(Number(text, value)) if isinstance(value, int) else torch.SymFloat(Number(text, value))
