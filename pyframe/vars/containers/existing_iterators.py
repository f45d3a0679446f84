"""Iterators that existed before the frame: `itertools.count`, and iterators over tuples and ranges.

The trace reads the state of the iterator through a copy of it, and the new bytecode advances the iterator after the
graph by as many steps as the program took.
"""

from __future__ import annotations

import collections
import copy
import itertools
import re
from typing import Any

from torch.autograd.function import AUTOGRAD_FUNCTION_COUNTER

from ...core.source import CallSource, Source
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import make
from ..tracer import Tracer
from .iterator import IteratorVar
from .sequence import TupleVar

COUNT = itertools.count
_OF_INTS = re.compile(r"count\((-?\d+)(?:, (-?\d+))?\)")
OVER_CONSTANTS: tuple[type, ...] = (type(iter(())), type(iter(range(0))), type(iter(range(1 << 70))))


class ExistingIteratorVar(IteratorVar):
    """An iterator that existed before the frame."""

    __slots__ = ()

    def __init__(self, value: Any, source: Source | None) -> None:
        super().__init__(type(value))
        self.source = source

    def moved(self, tx: Tracer) -> None:
        """Log one step of the iterator."""
        tx.effects.add("CALL", None, (_advance, [self], {}), tx.user_line())


class CountVar(ExistingIteratorVar):
    """An `itertools.count`; the numbers that it counts are not constants of the capture."""

    __slots__ = ("number", "step")

    def __init__(self, tx: Tracer, value: Any, source: Source, state: tuple[int, int]) -> None:
        super().__init__(value, source)
        number, step = state
        self.number = tx.wrap(number, CallSource(source, _number_of_count, "next"))
        self.step = tx.wrap(step, CallSource(source, _step_of_count, "step"))

    def advance(self, tx: Tracer) -> Var | None:
        found = self.number
        self.number = slots.binary(tx, "+", found, self.step)
        self.moved(tx)
        return found


class UniqueNumbersVar(ExistingIteratorVar):
    """The counter of torch that gives each `autograd.Function` class a number of its own. A class that the trace
    creates gets its number while tracing."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source) -> None:
        super().__init__(value, source)
        self.value = value

    def advance(self, tx: Tracer) -> Var | None:
        return make(next(self.value))


class RestVar(ExistingIteratorVar):
    """An iterator over a tuple or a range. `items` are those that it had not yet returned before the frame."""

    __slots__ = ("items", "position")

    def __init__(self, tx: Tracer, value: Any, source: Source) -> None:
        super().__init__(value, source)
        rest = tx.wrap(_rest(value), CallSource(source, _rest, "rest"))
        if not isinstance(rest, TupleVar):  # too many to be wrapped
            raise NotConstant("the items of an iterator")
        self.items, self.position = rest.items, 0

    def advance(self, tx: Tracer) -> Var | None:
        self.moved(tx)
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "__length_hint__":
            return self.unsupported(tx, f"attribute {name!r}")
        return super().getattr_(tx, name)


def wrap_iterator(tx: Tracer, value: Any, source: Source | None) -> Var | None:
    """The Var of an iterator that existed before the frame; None if it has no model."""
    if source is None:
        return None
    if value is AUTOGRAD_FUNCTION_COUNTER:
        tx.guard(source, "ID", value)
        return UniqueNumbersVar(value, source)
    if type(value) is COUNT and (state := _state_of_count(value)) is not None:
        tx.guard(source, "TYPE", COUNT)
        return CountVar(tx, value, source, state)
    if type(value) in OVER_CONSTANTS and tx.known is None:  # a resume function gets the iterators of cut loops
        tx.guard(source, "TYPE", type(value))
        try:
            return RestVar(tx, value, source)
        except NotConstant:
            return None
    return None


def _advance(iterator: Any) -> None:
    collections.deque(itertools.islice(iterator, 1), maxlen=0)


def _rest(iterator: Any) -> tuple[Any, ...]:
    return tuple(copy.copy(iterator))


def _state_of_count(count: Any) -> tuple[Any, Any] | None:
    """The next number and the step of an `itertools.count` of ints; None for other numbers. It has no attributes, and
    cannot be copied on CPython 3.14: its `repr()` is `count(number)` or `count(number, step)`."""
    found = _OF_INTS.fullmatch(repr(count))
    return None if found is None else (int(found[1]), int(found[2] or 1))


def _number_of_count(count: Any) -> Any:
    state = _state_of_count(count)
    return None if state is None else state[0]


def _step_of_count(count: Any) -> Any:
    state = _state_of_count(count)
    return None if state is None else state[1]
