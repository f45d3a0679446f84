"""The append-only log of what the traced program did to objects that the outside can see.

Vars are changed in place while tracing (a failed speculation restarts the trace with fresh Vars, so nothing is
ever rolled back); the log says *which* objects changed and in what order.  ``emit/replay`` turns it into
instructions as compute-then-commit: first every new value is computed and left in a temporary, then every write is
done, in the order in which the program first did it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .guard import UserLine

# kind -> what `detail` holds
EFFECT_KINDS: dict[str, str] = {
    "LIST": "None: target list now has the Var's items (target[:] = items)",
    "DICT": "None: target dict now has the Var's items in order",
    "SET": "None: target set now has the Var's items",
    "DEQUE": "None: target deque now has the Var's items",
    "ATTR": "attribute name: target.attr = the Var's current value (or deleted)",
    "GLOBAL": "global name, of the globals dict Var `target`",
    "CELL": "None: cell contents",
    "HANDLED": "what the thread handles from now on (the Var of an exception or None): the target is dealt with",
    "CALL": "(callable, args, kwargs) to run for its effect only, e.g. a deferred print or a context manager's enter",
}


@dataclass(frozen=True, slots=True)
class Effect:
    kind: str
    target: Any  # the Var of the changed object
    detail: Any
    line: UserLine | None


class EffectLog:
    def __init__(self) -> None:
        self._log: list[Effect] = []
        self.changes = 0  # of any object, also of those that the program made itself
        self.moves = 0  # of iterators

    def change(self, kind: str, target: Any, detail: Any, line: Callable[[], UserLine]) -> None:
        """`target` changed: an effect where the object existed before."""
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
        """Take back `effect` (this object): the program undid it before anyone could see it."""
        self._log = [each for each in self._log if each is not effect]

    def __iter__(self) -> Iterator[Effect]:
        return iter(self._log)

    def __len__(self) -> int:
        return len(self._log)
