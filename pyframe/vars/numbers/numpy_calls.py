"""Numpy's functions of scalars and of sequences of numbers, such as `numpy.sqrt(2)` and `numpy.prod(x.shape)`.

They are evaluated while tracing, or computed at run time from numbers that vary between calls.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import CallSource, Source
from ..objects.originals import as_first_seen, guard_parts
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..protocol.opaque import OpaqueVar
from ..registry import Handler, call_model, register
from ..tracer import Tracer
from . import numpy_arithmetic
from .dynamic import wrap_number as wrap_python_number
from .numpy_scalars import (
    NUMPY_NUMBERS,
    SCALARS,
    NumpyArgumentVar,
    NumpyNumberVar,
    as_type,
    evaluate,
    of_number,
    operand_of,
)  # fmt: skip
from .symint import NumberVar, apply

try:
    import numpy
except ImportError:  # torch runs without it
    NUMPY_FUNCTIONS: tuple[type, ...] = ()
    _OF_SEQUENCES: frozenset[Any] = frozenset()
    _OPERATORS: dict[Any, str] = {}
else:
    NUMPY_FUNCTIONS = (numpy.ufunc, type(numpy.prod))
    _OF_SEQUENCES = frozenset(
        {numpy.prod, numpy.sum, numpy.max, numpy.min, numpy.mean, numpy.median, numpy.any, numpy.all, numpy.argmax}
        | {numpy.argmin, numpy.var, numpy.std, numpy.round, numpy.clip, numpy.ndim, numpy.size}
    )
    _OPERATORS = {
        numpy.add: "+", numpy.subtract: "-", numpy.multiply: "*", numpy.true_divide: "/", numpy.floor_divide: "//",
        numpy.remainder: "%", numpy.power: "**",
    }  # fmt: skip


class NumpyFunctionVar(ConstVar):
    """A ufunc, or a numpy function of sequences such as `prod`; evaluated while tracing if the result is a number."""

    __slots__ = ()

    def truth(self, tx: Tracer) -> bool:
        return True

    def gives_number(self, args: Sequence[Var]) -> bool:
        """Whether a call with these arguments, none of them an array, returns a number."""
        if self.value in _OF_SEQUENCES:
            return True
        return type(self.value) is numpy.ufunc and all(map(_is_scalar, args))

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if (model := call_model(self.value)) is not None:
            return model(tx, list(args), dict(kwargs))
        if not kwargs and (found := _of_varying(tx, self.value, args)) is not None:
            return found
        if not self.gives_number(args):
            return tx.graph_break("unknown-c-function", f"numpy.{self.value.__name__} of something other than numbers")
        return evaluate(tx, f"numpy.{self.value.__name__}", self.value, args, kwargs)


def _is_scalar(var: Var) -> bool:
    if isinstance(var, NumpyArgumentVar | NumberVar):
        return True
    return isinstance(slots.constant_or(var, None), SCALARS)


def _of_varying(tx: Tracer, function: Any, args: Sequence[Var]) -> Var | None:
    """`function(*args)` computed at run time, if it is a function of numbers some of which vary; else None."""
    if function is numpy.prod and len(args) == 1:
        return _product(tx, args[0])
    if type(function) is not numpy.ufunc or not any(isinstance(arg, NumpyArgumentVar | NumberVar) for arg in args):
        return None
    operands = [operand_of(arg) for arg in args]
    if None in operands:
        return None
    if len(args) == 1:
        return _of_one(tx, function, args[0], *operands)  # type: ignore[arg-type]
    if len(args) != 2 or function not in _OPERATORS or not any(isinstance(arg, NumpyNumberVar) for arg in args):
        return None
    found = numpy_arithmetic.binary(tx, _OPERATORS[function], *operands)  # type: ignore[arg-type]
    return None if found is None else of_number(tx, *found)


def _of_one(tx: Tracer, function: Any, arg: Var, operand: numpy_arithmetic.Operand) -> Var | None:
    """A ufunc of one number: numpy itself is called for an argument of the frame."""
    with numpy.errstate(all="ignore"):
        kind = type(function(operand.example))
    if function is numpy.sqrt and kind is numpy.float64:
        number = numpy_arithmetic.square_root(tx, operand)
        return None if number is None else of_number(tx, kind, number)
    if arg.source is None or numpy.dtype(kind).kind not in "iuf":
        return None
    source = CallSource(arg.source, function, f"numpy.{function.__name__}")
    tx.graph.history.varied.add((CallSource(source, numpy.generic.item, "item"), None))
    return wrap_number(tx, function(operand.example), source)


def _product(tx: Tracer, sequence: Var) -> Var | None:
    """`numpy.prod` of a tuple or list of ints such as sizes, some of which vary."""
    items = getattr(sequence, "items", None)
    if not isinstance(items, list | tuple) or not any(isinstance(item, NumberVar) for item in items):
        return None
    if any(item.python_type() is not int or operand_of(item) is None for item in items):
        return None
    found = functools.reduce(lambda a, b: apply(tx, "*", a, b), items)
    kind = type(numpy.prod([1]))
    return of_number(tx, kind, found) if numpy_arithmetic.within(tx, kind, found) else None


def wrap_number(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a numpy scalar that existed before the frame, or of a constant."""
    if source is not None and value.dtype.kind in "iuf" and type(plain := value.item()) in (int, float):
        number = wrap_python_number(tx, plain, CallSource(source, numpy.generic.item, "item"), source)
        if number is not None:
            tx.guard(source, "TYPE", type(value))
            return NumpyArgumentVar(tx, value, number, source)
        if type(plain) is float:  # zeros of both signs are equal to `numpy`
            tx.guard(source, "TYPE", type(value))
            tx.guard(CallSource(source, numpy.generic.item, "item"), "EQUALS", plain)
            return NumpyNumberVar(value, source)
    tx.guard(source, "EQUALS", value)
    return NumpyNumberVar(value, source)


def wrap_function(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a numpy function; opaque if the program has replaced its Python implementation."""
    tx.guard(source, "ID", value)
    written_in_python = getattr(value, "_implementation", None)
    if isinstance(written_in_python, types.FunctionType):
        if not as_first_seen(written_in_python):
            return OpaqueVar(value, source)
        guard_parts(tx, written_in_python)
    return NumpyFunctionVar(value, source)


def _constructor(cls: type) -> Handler:
    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        if len(args) == 1 and not kwargs and (found := as_type(tx, args[0], ConstVar(cls))) is not None:
            return found
        return evaluate(tx, f"numpy.{cls.__name__}", cls, args, kwargs)

    return run


for _cls in NUMPY_NUMBERS:
    register(_cls)(_constructor(_cls))
