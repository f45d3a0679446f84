"""Arithmetic of numpy scalars that vary between calls.

A numpy scalar is computed as a Python number, and converted to its type where the program takes it as an object. That
is exact as long as integers stay in the range of their type, which guards check, and if floats of 32 bits are rounded
after each operator. Where a rule here does not apply (None), the operator is evaluated with the values of the current
call, which specializes the capture to them.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from ..protocol.base import Var
from ..protocol.const import BINARY, ConstVar
from ..tracer import Tracer
from .symint import apply

try:
    import numpy
except ImportError:  # torch runs without it
    numpy = None  # type: ignore[assignment]

_EXACT = 1 << 53  # the largest magnitude up to which each integer is a float64
_LARGEST = 1 << 62  # integers in guards are computed with 64 bits
_MAX_EXPONENT = 64
# The range of bases for which no power with an exponent up to _MAX_EXPONENT overflows or is subnormal.
_BASES = (1e-4, 1e4)
_OF_INTS = frozenset("+ - * // % ** & | << >>".split())
_OF_FLOATS = frozenset("+ - * / // % **".split())
# Rounding the result of float64 to float32 gives that of float32 for these.
_ROUNDED_ONCE = frozenset("+ - * /".split())


class Operand(NamedTuple):
    """A number of Python or numpy: its value in the current call, and the Python number as a NumberVar or ConstVar."""

    example: Any
    number: Var


def is_numpy(value: Any) -> bool:
    return isinstance(value, numpy.generic)


def python_number(value: Any) -> int | float | None:
    """A numpy scalar as an int or float of the same value; None for other kinds of scalars."""
    plain = value.item() if value.dtype.kind in "iuf" else None
    return plain if type(plain) in (int, float) else None


def binary(tx: Tracer, op: str, left: Operand, right: Operand) -> tuple[type, Var] | None:
    """The numpy type of `left op right`, and the result as a Python number."""
    if not _has_fixed_types() or not _warns_only():
        return None
    try:
        with numpy.errstate(all="ignore"):
            found = BINARY[op](left.example, right.example)
    except (ArithmeticError, TypeError, ValueError):  # the program gets it where the operator is evaluated
        return None
    if not is_numpy(found) or (op in ("/", "//", "%") and not right.number.truth(tx)):
        return None
    kind = type(found)
    if found.dtype.kind in "iu":
        number = _of_ints(tx, op, kind, left, right)
    else:
        number = _of_floats(tx, op, kind, left, right)
    return None if number is None else (kind, number)


def _of_ints(tx: Tracer, op: str, kind: type, left: Operand, right: Operand) -> Var | None:
    operands = (left, right)
    if op not in _OF_INTS or any(each.number.python_type() not in (int, bool) for each in operands):
        return None
    if op in ("**", "<<", ">>"):
        times = right.number.constant() if isinstance(right.number, ConstVar) else -1
        if not 0 <= times < (8 if op == "**" else numpy.dtype(kind).itemsize * 8):
            return None
    if not all(within(tx, kind, each.number) for each in operands if not is_numpy(each.example)):
        return None
    number = apply(tx, op, left.number, right.number)
    return number if within(tx, kind, number) else None


def _of_floats(tx: Tracer, op: str, kind: type, left: Operand, right: Operand) -> Var | None:
    if op not in _OF_FLOATS or kind not in (numpy.float64, numpy.float32):
        return None
    if kind is numpy.float32 and op not in _ROUNDED_ONCE:
        return None
    numbers = [convert(tx, kind, each) for each in (left, right)]
    if any(number is None for number in numbers) or (op == "**" and not _is_moderate(tx, *numbers)):  # type: ignore[arg-type]
        return None
    return rounded(tx, kind, apply(tx, op, *numbers))  # type: ignore[arg-type]


def _is_moderate(tx: Tracer, base: Var, exponent: Var) -> bool:
    """Whether a power is neither complex, infinite nor subnormal, for all values that pass the guards added here."""
    bounds = [(">=", base, _BASES[0]), ("<=", base, _BASES[1])]
    bounds += [(">=", exponent, -_MAX_EXPONENT), ("<=", exponent, _MAX_EXPONENT)]
    return all(apply(tx, op, number, ConstVar(bound)).truth(tx) for op, number, bound in bounds)


def compare(tx: Tracer, op: str, left: Operand, right: Operand) -> Var | None:
    """The outcome of a comparison, as a bool."""
    if not _has_fixed_types():
        return None
    kinds = {each.number.python_type() for each in (left, right)}
    if kinds <= {int, bool}:
        return apply(tx, op, left.number, right.number)
    kind = numpy.result_type(left.example, right.example).type
    if kind not in (numpy.float64, numpy.float32):
        return None
    numbers = [convert(tx, kind, each) for each in (left, right)]
    return None if None in numbers else apply(tx, op, *numbers)  # type: ignore[arg-type]


def unary(tx: Tracer, op: str, operand: Operand) -> Var | None:
    """`op operand`, for "-", "+", "~" or "abs", as a Python number of the operand's numpy type."""
    kind, number = type(operand.example), operand.number
    unsigned = operand.example.dtype.kind == "u"
    if op == "+" or (op == "abs" and unsigned):
        return number
    if unsigned or (op == "~" and number.python_type() is not int):
        return None
    found = number.unary(tx, op) if op == "~" else apply(tx, "neg" if op == "-" else "abs", number)
    return found if number.python_type() is float or within(tx, kind, found) else None


def convert(tx: Tracer, kind: type, operand: Operand) -> Var | None:
    """A number converted to a numpy type, as a Python number."""
    number = operand.number
    if issubclass(kind, numpy.integer):
        return number if number.python_type() in (int, bool) and within(tx, kind, number) else None
    if kind not in (numpy.float64, numpy.float32):
        return None
    if isinstance(number, ConstVar):
        with numpy.errstate(all="ignore"):
            return ConstVar(kind(number.constant()).item())
    if number.python_type() is int:
        if kind is numpy.float32 and not within(tx, None, number, _EXACT):  # it would be rounded twice
            return None
        number = apply(tx, "float", number)
    if number.python_type() is not float:
        return None
    return number if type(operand.example) is kind else rounded(tx, kind, number)


def rounded(tx: Tracer, kind: type, number: Var) -> Var:
    return apply(tx, "float32", number) if kind is numpy.float32 else number


def square_root(tx: Tracer, operand: Operand) -> Var | None:
    """`numpy.sqrt` of a number for which it returns a float64."""
    number = convert(tx, numpy.float64, operand)
    if number is None or not apply(tx, ">", number, ConstVar(0.0)).truth(tx):
        return None
    return apply(tx, "sqrt", number)


def within(tx: Tracer, kind: type | None, number: Var, most: int = _LARGEST) -> bool:
    """Whether an int is in the range of a numpy type, and not beyond `most`; guards it."""
    low, high = -most, most
    if kind is not None:
        low, high = max(low, int(numpy.iinfo(kind).min)), min(high, int(numpy.iinfo(kind).max))
    bounds = ((">=", low), ("<=", high))
    return all(apply(tx, op, number, ConstVar(bound)).truth(tx) for op, bound in bounds)


@functools.cache
def _has_fixed_types() -> bool:
    """Whether result types depend on the types of the operands alone, as from NumPy 2 on."""
    return bool((numpy.int8(1) + 1).dtype.itemsize == 1)


def _warns_only() -> bool:
    """Whether numpy raises no exception for what overflows."""
    return all(mode in ("warn", "ignore") for mode in numpy.geterr().values())
