"""The log of side effects: changes that the traced program made to objects that existed before the call.

While tracing, Vars are changed in place and never rolled back (a failed speculation restarts the trace with new
Vars); the log records *which* objects changed and in what order.  ``emit/replay`` turns it into instructions in two
phases: first every new value is computed and stored in a temporary, then every write is done, in the order in which
the program first made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .guard import UserLine

# kind -> the meaning of `detail`
EFFECT_KINDS: dict[str, str] = {
    "LIST": "None: target list now has the Var's items (target[:] = items)",
    "DICT": "None: target dict now has the Var's items in order",
    "SET": "None: target set now has the Var's items",
    "DEQUE": "None: target deque now has the Var's items",
    "ATTR": "attribute name: target.attr = the Var's current value (or deleted)",
    "GLOBAL": "global name, of the globals dict Var `target`",
    "CELL": "None: cell contents",
    "HANDLED": "the exception that the thread handles from now on (its Var) or None; the target is handled no longer",
    "CALL": "(callable, args, kwargs) to run for its effect only, e.g. a deferred print or a context manager's enter",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """A change of an object that existed before the call; `detail` depends on the kind (`EFFECT_KINDS`)."""

    kind: str
    target: Any  # the Var of the changed object
    detail: Any
    line: UserLine | None


class EffectLog:
    """The effects of a trace, in the order in which the program first changed each object."""

    def __init__(self) -> None:
        self._log: list[Effect] = []
        self.changes = 0  # counts changes of any object, including those that the traced program created
        self.moves = 0  # counts steps of iterators

    def change(self, kind: str, target: Any, detail: Any, line: Callable[[], UserLine]) -> None:
        """Count a change of `target`; log it as an effect if the object existed before the frame."""
        self.changes += 1
        if target.source is not None:
            self.add(kind, target, detail, line())

    def add(self, kind: str, target: Any, detail: Any = None, line: UserLine | None = None) -> Effect:
        if kind not in EFFECT_KINDS:
            raise ValueError(f"unknown effect kind {kind!r}; known: {', '.join(EFFECT_KINDS)}")
        self.changes += 1
        effect = Effect(kind, target, detail, line)
        self._log.append(effect)
        return effect

    def cancel(self, effect: Effect) -> None:
        """Remove `effect` (by identity): the program undid it before it became visible outside."""
        self._log = [each for each in self._log if each is not effect]

    def __iter__(self) -> Iterator[Effect]:
        return iter(self._log)

    def __len__(self) -> int:
        return len(self._log)
