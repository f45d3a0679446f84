"""What sources led to when a frame began, and whether guards hold, for a trace that asks this of many sources."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any

from ..core.guard import Guard
from ..core.guard_program import OPERANDS, guard_row, source_row
from ..core.guard_reference import ACCESSORS, CHECKS, CallContext
from ..core.source import Source


class EntryValues:
    """The values of sources in one call of `function` with the fast locals `locals_`. The program's objects are then as
    they were when the frame began, because a trace changes none."""

    def __init__(self, function: types.FunctionType, locals_: tuple[Any, ...]) -> None:
        self._context = CallContext(function, locals_)
        self._values: dict[Source, Any] = {}

    def read(self, source: Source) -> Any:
        """The value of a source when the frame began; exceptions of the reads propagate."""
        try:
            return self._values[source]
        except KeyError:
            pass
        name, *operands = source_row(source)
        found = self._values[source] = ACCESSORS[name](self._context, *self._operands(name, operands))
        return found

    def _operands(self, name: str, operands: Sequence[Any]) -> Iterator[Any]:
        for letter, operand in zip(OPERANDS[name].removeprefix("d"), operands, strict=True):
            if letter == "r":
                yield self.read(operand)
            elif letter == "R":
                yield tuple(map(self.read, operand))
            else:
                yield operand

    def holds(self, guard: Guard) -> bool:
        """Whether a guard holds for this call of the frame."""
        name, *operands = guard_row(guard)
        try:
            return bool(CHECKS[name](*self._operands(name, operands)))
        except Exception:  # noqa: BLE001  user code runs here (attributes, __eq__); the guard fails if it raises
            return False
