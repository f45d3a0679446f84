"""Placeholders for numbers that are arguments of a program: the engine computes with them while it describes a backward
pass, and each remembers the Python expression of its value."""

from __future__ import annotations

import builtins
from collections.abc import Callable

import torch


class _Known:
    """What torch asks of each value behind a symbol: it is no constant, and has a value now."""

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return True


class Truth(_Known):
    """The result of a comparison: what a `torch.SymBool` refers to."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def is_bool(self) -> bool:
        return True

    def maybe_as_bool(self) -> bool | None:
        return None

    def guard_bool(self, file: builtins.str, line: int) -> bool:
        return self.value

    expect_true = guard_size_oblivious = guard_or_false = guard_or_true = guard_bool


class Number(_Known):
    """What a `torch.SymInt` or `torch.SymFloat` refers to as its node: an expression in the program's source.

    `hint` is the value in the backward pass that is being recorded. torch calls the methods from C++. `asked` is called
    if it compares the number or asks for its value, because it may describe the next pass in another way.
    """

    def __init__(self, text: builtins.str, hint: int | float, asked: Callable[[], None]) -> None:
        self.text, self.hint, self.asked = text, hint, asked

    def is_int(self) -> bool:
        return isinstance(self.hint, int)

    def is_float(self) -> bool:
        return isinstance(self.hint, float)

    def is_bool(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

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
        return Number(repr(value), value, self.asked)

    def wrap_float(self, value: float) -> Number:
        return Number(repr(value), value, self.asked)

    def guard_int(self, file: builtins.str, line: int) -> int:
        self.asked()
        assert isinstance(self.hint, int)
        return self.hint

    expect_size = guard_int

    def add(self, other: Number) -> Number:
        return self._combined("+", other, self.hint + other.hint)

    def sub(self, other: Number) -> Number:
        return self._combined("-", other, self.hint - other.hint)

    def mul(self, other: Number) -> Number:
        return self._combined("*", other, self.hint * other.hint)

    def _combined(self, sign: builtins.str, other: Number, hint: int | float) -> Number:
        return Number(f"({self.text} {sign} {other.text})", hint, self.asked)

    def eq(self, other: Number) -> Truth:
        return self._compared(self.hint == other.hint)

    def ne(self, other: Number) -> Truth:
        return self._compared(self.hint != other.hint)

    def lt(self, other: Number) -> Truth:
        return self._compared(self.hint < other.hint)

    def le(self, other: Number) -> Truth:
        return self._compared(self.hint <= other.hint)

    def gt(self, other: Number) -> Truth:
        return self._compared(self.hint > other.hint)

    def ge(self, other: Number) -> Truth:
        return self._compared(self.hint >= other.hint)

    def _compared(self, value: bool) -> Truth:
        self.asked()
        return Truth(value)


def symbol(text: builtins.str, value: int | float, asked: Callable[[], None]) -> torch.SymInt | torch.SymFloat:
    """A placeholder for the number that the expression `text` has in the program; see `Number` for `asked`."""
    number = Number(text, value, asked)
    return torch.SymInt(number) if isinstance(value, int) else torch.SymFloat(number)
