"""Numpy scalars: constants of the capture, and those that vary between calls.

Arrays are modelled elsewhere, functions of scalars in `numpy_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import Source
from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import BINARY, COMPARE, ConstVar, MethodVar, fold, maker
from ..protocol.number_text import text_of_number
from ..tracer import Tracer
from . import numpy_arithmetic
from .numpy_arithmetic import Operand, python_number
from .symint import NUMBERS, NumberVar

try:
    import numpy
except ImportError:  # torch runs without it
    _NUMBERS: tuple[type, ...] = ()
else:
    _NUMBERS = (numpy.number, numpy.bool_)


def _subclasses(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [kind, *(each for derived in below for each in _subclasses(derived))]


NUMPY_NUMBERS = tuple(each for kind in _NUMBERS for each in _subclasses(kind))


SCALARS = (int, float, complex, *NUMPY_NUMBERS)
# Attributes that depend on the type alone.
_OF_TYPE = frozenset("dtype shape ndim size itemsize nbytes strides".split())


class NumpyNumberVar(ConstVar):
    """A numpy scalar such as `numpy.float32(1.5)`, a constant."""

    __slots__ = ()

    takes_numbers = True

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op not in BINARY:
            return None
        if _varies(self) or _varies(other):
            left, right = map(operand_of, (other, self) if reflected else (self, other))
            if left and right and (found := numpy_arithmetic.binary(tx, op, left, right)) is not None:
                return of_number(tx, *found)
        value = _constant_value(other)
        if not isinstance(value, SCALARS):
            return None
        return fold(tx, BINARY[op], *((value, self.value) if reflected else (self.value, value)))

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if _varies(self) or _varies(other):
            left, right = operand_of(self), operand_of(other)
            if left and right and (found := numpy_arithmetic.compare(tx, op, left, right)) is not None:
                return of_truth(tx, found)
        value = _constant_value(other)
        if isinstance(value, str | bytes | None) and other.is_constant():  # only the type matters
            return fold(tx, COMPARE[op], self.python_type()(1), value)
        return None if value is None else fold(tx, COMPARE[op], self.value, value)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return evaluate(tx, f"{type(self.value).__name__}.{name}", getattr(self.value, name), args, kwargs)


class NumpyArgumentVar(NumpyNumberVar):
    """A numpy scalar that varies between calls: an argument, or computed from one. In operators of torch it is
    `number`, as torch converts it; `example` is its value in the current call. Whatever else reads the value
    specializes the capture to it."""

    __slots__ = ("example", "number", "tx")

    varies = True

    def __init__(self, tx: Tracer, example: Any, number: NumberVar, source: Source | None) -> None:
        self.tx, self.example, self.number = tx, example, number
        self.source = source

    @property
    def value(self) -> Any:
        return self.python_type()(self.number.constant())

    def python_type(self) -> type:
        return type(self.example)

    def describe(self) -> str:
        return self.number.describe() if self.source is None else f"{self.source}, which varies between calls"

    def truth(self, tx: Tracer) -> bool:
        return self.number.truth(tx)

    def unary(self, tx: Tracer, op: str) -> Var:
        found = numpy_arithmetic.unary(tx, op, Operand(self.example, self.number))
        return super().unary(tx, op) if found is None else of_number(tx, self.python_type(), found)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        kind = self.python_type()
        if name in _OF_TYPE:
            return NumpyNumberVar(kind(1)).getattr_(tx, name)
        if name in ("real", "T"):
            return self
        return MethodVar(self, name) if callable(getattr(kind, name, None)) else super().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if not kwargs:
            if name in ("item", "tolist") and not args:
                return self.number
            if name == "__abs__" and not args:
                found = numpy_arithmetic.unary(tx, "abs", Operand(self.example, self.number))
                if found is not None:
                    return of_number(tx, self.python_type(), found)
            if name == "astype" and len(args) == 1 and (converted := as_type(tx, self, args[0])) is not None:
                return converted
        return super().call_method(tx, name, args, kwargs)

    def format_(self, tx: Tracer, spec: Var) -> Var | None:
        return text_of_number(tx, self, self.number.python_type()(self.example), spec.constant())

    def str_(self, tx: Tracer) -> Var | None:
        if self.python_type() is numpy.float32:  # the shortest digits of a float32, unlike `format`
            return None
        return self.format_(tx, ConstVar(""))

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.python_type())
        cg.call_top(lambda: cg.load(self.number))


class NumpyTruthVar(NumpyNumberVar):
    """A `numpy.bool_` that a comparison of scalars that vary has computed: `number` as a bool of Python."""

    __slots__ = ("number",)

    varies = True

    def __init__(self, number: NumberVar) -> None:
        self.number, self.source = number, None

    @property
    def value(self) -> Any:
        return numpy.bool_(self.number.constant())

    def python_type(self) -> type:
        return numpy.bool_

    def describe(self) -> str:
        return self.number.describe()

    def truth(self, tx: Tracer) -> bool:
        return self.number.truth(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(numpy.bool_)
        cg.call_top(lambda: cg.load(self.number))


def _varies(var: Var) -> bool:
    return isinstance(var, NumpyArgumentVar) or (isinstance(var, NumberVar) and not var.is_constant())


def _constant_value(var: Var) -> Any:
    """The value of an operand, to which the capture is specialized; None if it is not known while tracing."""
    if isinstance(var, NumberVar) and var.python_type() in NUMBERS:
        return var.constant()
    return slots.constant_or(var, None)


def operand_of(var: Var) -> Operand | None:
    """A number of Python or numpy as an operand; None for what is no int, float or bool, or depends on data."""
    if isinstance(var, NumpyArgumentVar):
        return Operand(var.example, var.number)
    if isinstance(var, NumberVar):
        return None if var.example is None else Operand(var.python_type()(var.example), var)
    if not isinstance(var, ConstVar) or isinstance(var, NumpyTruthVar):
        return None
    value = var.value
    plain = python_number(value) if isinstance(value, NUMPY_NUMBERS) else value
    return Operand(value, ConstVar(plain)) if type(plain) in NUMBERS else None


def of_number(tx: Tracer, kind: type, number: Var) -> Var:
    """The numpy scalar of this type with the value of a Python number."""
    if not isinstance(number, NumberVar) or number.is_constant():
        return NumpyNumberVar(kind(number.constant()))
    return NumpyArgumentVar(tx, kind(number.example), number, None)


def of_truth(tx: Tracer, truth: Var) -> Var:
    if not isinstance(truth, NumberVar) or truth.is_constant():
        return NumpyNumberVar(numpy.bool_(truth.constant()))
    return NumpyTruthVar(truth)


def as_type(tx: Tracer, var: Var, dtype: Var) -> Var | None:
    """A number that varies, converted to a type of numpy; None if it has to be converted now."""
    wanted = slots.constant_or(dtype, None)
    try:
        kind = numpy.dtype(wanted).type if wanted is not None else None
    except TypeError:
        return None
    operand = operand_of(var)
    if kind is None or operand is None or not _varies(var):
        return None
    number = numpy_arithmetic.convert(tx, kind, operand)
    return None if number is None else of_number(tx, kind, number)


def evaluate(tx: Tracer, name: str, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`fn(*args, **kwargs)` of constants, called while tracing."""
    try:
        values, named = [arg.plain() for arg in args], {key: arg.plain() for key, arg in kwargs.items()}
    except NotConstant:
        return tx.graph_break("unknown-c-function", f"{name} of values known only at run time")
    result = fold(tx, fn, *values, **named)
    if isinstance(slots.constant_or(result, None), numpy.ndarray):
        return tx.graph_break("unknown-c-function", f"{name} returns an array")
    return result


maker(*NUMPY_NUMBERS)(NumpyNumberVar)
