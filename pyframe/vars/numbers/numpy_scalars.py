"""Models of numpy scalars, and of numpy functions called with scalars or sequences of them.

Such calls are evaluated while tracing.  Scalars are constants, but those that vary between calls stay numbers in
operators of torch.  Arrays are modelled elsewhere.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import CallSource, Source
from ..objects.originals import as_first_seen, guard_parts
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import BINARY, ConstVar, fold, maker
from ..protocol.opaque import OpaqueVar
from ..registry import Handler, call_model, register
from ..tracer import Tracer
from .dynamic import wrap_number as wrap_python_number
from .symint import NumberVar

try:
    import numpy
except ImportError:  # torch runs without it
    _NUMBERS: tuple[type, ...] = ()
    NUMPY_FUNCTIONS: tuple[type, ...] = ()
    _OF_SEQUENCES: frozenset[Any] = frozenset()
else:
    _NUMBERS = (numpy.number, numpy.bool_)
    NUMPY_FUNCTIONS = (numpy.ufunc, type(numpy.prod))
    _OF_SEQUENCES = frozenset(
        {numpy.prod, numpy.sum, numpy.max, numpy.min, numpy.mean, numpy.median, numpy.any, numpy.all, numpy.argmax}
        | {numpy.argmin, numpy.var, numpy.std, numpy.round, numpy.clip, numpy.ndim, numpy.size}
    )


def _subclasses(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [kind, *(each for derived in below for each in _subclasses(derived))]


NUMPY_NUMBERS = tuple(each for kind in _NUMBERS for each in _subclasses(kind))


_SCALARS = (int, float, complex, *NUMPY_NUMBERS)


class NumpyNumberVar(ConstVar):
    """A numpy scalar such as `numpy.float32(1.5)`, a constant."""

    __slots__ = ()

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op not in BINARY or not isinstance(slots.constant_or(other, None), _SCALARS):
            return None
        value = other.constant()
        return fold(tx, BINARY[op], *((value, self.value) if reflected else (self.value, value)))

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return _call(tx, f"{type(self.value).__name__}.{name}", getattr(self.value, name), args, kwargs)


class NumpyArgumentVar(NumpyNumberVar):
    """A numpy scalar that varies between calls. In operators of torch it is `number`, as torch converts it; whatever
    else reads its value specializes the capture to the value in the current call."""

    __slots__ = ("example", "number", "tx")

    varies = True

    def __init__(self, tx: Tracer, example: Any, number: NumberVar, source: Source) -> None:
        self.tx, self.example, self.number = tx, example, number
        self.source = source

    @property
    def value(self) -> Any:
        self.tx.guard(self.source, "EQUALS", self.example)
        return self.example

    def python_type(self) -> type:
        return type(self.example)

    def describe(self) -> str:
        return f"{self.source}, which varies between calls"

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in ("item", "tolist") and not args and not kwargs:
            return self.number
        return super().call_method(tx, name, args, kwargs)


class NumpyFunctionVar(ConstVar):
    """A ufunc, or a numpy function of sequences such as `prod`; evaluated while tracing if the result is a number."""

    __slots__ = ()

    def truth(self, tx: Tracer) -> bool:
        return True

    def gives_number(self, args: Sequence[Var]) -> bool:
        """Whether a call with these arguments, none of them an array, returns a number."""
        if self.value in _OF_SEQUENCES:
            return True
        return type(self.value) is numpy.ufunc and all(isinstance(slots.constant_or(a, None), _SCALARS) for a in args)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if (model := call_model(self.value)) is not None:
            return model(tx, list(args), dict(kwargs))
        if not self.gives_number(args):
            return tx.graph_break("unknown-c-function", f"numpy.{self.value.__name__} of something other than numbers")
        return _call(tx, f"numpy.{self.value.__name__}", self.value, args, kwargs)


def _call(tx: Tracer, name: str, fn: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    try:
        values, named = [arg.plain() for arg in args], {key: arg.plain() for key, arg in kwargs.items()}
    except NotConstant:
        return tx.graph_break("unknown-c-function", f"{name} of values known only at run time")
    result = fold(tx, fn, *values, **named)
    if isinstance(slots.constant_or(result, None), numpy.ndarray):
        return tx.graph_break("unknown-c-function", f"{name} returns an array")
    return result


def wrap_number(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a numpy scalar that existed before the frame, or of a constant."""
    if source is not None and value.dtype.kind in "iuf" and type(plain := value.item()) in (int, float):
        number = wrap_python_number(tx, plain, CallSource(source, numpy.generic.item, "item"), source)
        if number is not None:
            tx.guard(source, "TYPE", type(value))
            return NumpyArgumentVar(tx, value, number, source)
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
    return lambda tx, args, kwargs: _call(tx, f"numpy.{cls.__name__}", cls, args, kwargs)


for _cls in NUMPY_NUMBERS:
    register(_cls)(_constructor(_cls))
maker(*NUMPY_NUMBERS)(NumpyNumberVar)
