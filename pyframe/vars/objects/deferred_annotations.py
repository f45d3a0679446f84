"""Annotations that are evaluated when they are read (PEP 649, CPython 3.14 and later), by tracing `__annotate__`.

`annotationlib` asks for annotations in one of several formats, but the `__annotate__` functions that CPython's compiler
generates support only VALUE.  FORWARDREF gives the same result when all names in the annotations are defined.  The
graph breaks when they are not, and for STRING.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol import slots
from ..protocol.base import Raised, Var
from ..protocol.const import make
from ..tracer import Tracer

VALUE, VALUE_WITH_FAKE_GLOBALS, FORWARDREF = 1, 2, 3  # annotationlib.Format


def evaluated(tx: Tracer, annotate: Var | None) -> Any:
    """The dict that `annotate(VALUE)` returns; an empty dict if `annotate` is None."""
    if annotate is None or slots.constant_or(annotate, annotate) is None:
        return make({})
    found = tx.call(annotate, [make(VALUE)], {})
    if not slots.has_type(found, dict):
        tx.raise_(TypeError, f"__annotate__ returned non-dict of type {slots.type_name(found)!r}")
    return found


def in_format(tx: Tracer, annotate: Var, number: Var) -> Var:
    """`annotationlib.call_annotate_function(annotate, number)`."""
    if number.constant() == VALUE_WITH_FAKE_GLOBALS:
        tx.raise_(ValueError, "The VALUE_WITH_FAKE_GLOBALS format is for internal use only")
    try:
        return tx.call(annotate, [number], {})
    except Raised as raised:
        if not slots.has_type(raised.exc, NotImplementedError):
            raise
    if number.constant() != FORWARDREF:
        return annotate.unsupported(tx, "annotations as strings")
    try:
        return tx.call(annotate, [make(VALUE)], {})
    except Raised:
        return annotate.unsupported(tx, "annotations that cannot be evaluated")


class PlaceholderAnnotate:
    """Placeholder for a traced `__annotate__` function, set on the placeholder of a class.

    Code that reads the annotations of that class while tracing gets the values that `evaluate(format)` computes by
    tracing the real function.
    """

    def __init__(self, evaluate: Callable[[int], Any]) -> None:
        self.evaluate = evaluate

    def __call__(self, number: int) -> Any:
        return self.evaluate(number)
