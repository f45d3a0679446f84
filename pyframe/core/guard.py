"""Guards as data: the assumptions of a capture that must hold for it to be reused.

A ``Guard(source, kind, payload, line)`` has a kind from the table ``KINDS``.  ``guard_program`` lowers it to the
program that C evaluates; ``guard_explain`` evaluates it in Python (the reference for tests) and writes the message of a
failure.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .frozen import frozen
from .source import Source


@frozen
class UserLine:
    """A place in the user's code, as quoted by guards, breaks and errors."""

    filename: str
    lineno: int
    function: str
    text: str = ""  # the source line; if empty, `quoted` reads it from the file

    @property
    def quoted(self) -> str:
        """The source line without indentation; "" if the source is not available."""
        return (self.text or linecache.getline(self.filename, self.lineno)).strip()

    def __str__(self) -> str:
        quoted = self.quoted
        return f"{self.filename}:{self.lineno} in {self.function}" + (f": `{quoted}`" if quoted else "")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of guard.  ``payload`` documents the guard's payload; ``cost`` is the relative cost of the check."""

    name: str
    payload: str
    cost: int


KINDS: dict[str, Kind] = {
    k.name: k
    for k in (
        Kind("TYPE", "the exact type", 1),
        Kind("ID", "the object itself (held strongly)", 1),
        Kind("NOT_ID", "an object it must not be (None, say)", 1),
        Kind("EQUALS", "a constant: same exact type and equal (floats bitwise)", 2),
        Kind("LEN", "int: len() of a list, tuple, dict, set", 2),
        Kind("DICT_KEYS", "tuple of the keys in order", 3),
        Kind("DICT_HAS", "a key that must be present", 3),
        Kind("DICT_LACKS", "a key that must be absent", 3),
        Kind("HAS_ATTR", "attribute name that must exist", 4),
        Kind("NO_ATTR", "attribute name that must not exist", 4),
        Kind("CLASS_FINDS", "ClassReads: what was found along the MRO of a class", 3),
        Kind("TENSOR", "TensorMeta", 5),
        Kind("GLOBAL_STATE", "a GlobalState snapshot; source is None", 5),
        Kind("SAME", "another Source whose value must be the same object", 2),
        Kind("DISTINCT", "tuple of Sources: all different objects; source is None", 6),
        Kind("RELATION", "a Tree over ints (core.expr) that must be true, or Holds for numbers of any kind", 3),
        Kind("PREDICATE", "(callable, tuple of further Sources, text): callable(value, *values) must be true", 8),
    )
}


@frozen
class TensorMeta:
    """The metadata that a TENSOR guard checks.  ``sizes`` and ``strides`` hold ints, or None where any value is
    accepted (a dynamic dimension)."""

    type: type
    dtype: Any
    device: Any
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    requires_grad: bool
    dispatch_keys: int


@dataclass(frozen=True, slots=True, eq=False)
class ClassReads:
    """What a capture depends on of a class: its metaclass, its MRO, and raw attributes found along the MRO.

    ``entries`` is a flat sequence of triples: (name, 0, None) must be found nowhere, (name, 1, raw) must be this
    object, (name, 2, type) must be an object of exactly this type."""

    metaclass: type
    method_order: tuple[type, ...]  # the MRO
    entries: tuple[Any, ...]


@frozen
class Guard:
    """An assumption of a capture about the value of `source`; `payload` depends on the kind (`KINDS`)."""

    source: Source | None
    kind: str
    payload: Any
    line: UserLine | None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown guard kind {self.kind!r}; known: {', '.join(KINDS)}")

    def __str__(self) -> str:
        where = f"  # {self.line}" if self.line else ""
        return f"{self.kind}({self.source}, {self.payload!r}){where}"


class GuardSet:
    """A set of guards in the order in which they were added.  A guard on a container thus comes before the guards on
    its items, and evaluation never reads through an object that has not been checked."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []
        self._seen: set[tuple[Any, ...]] = set()

    def add(self, guard: Guard) -> None:
        self.assume(guard.source, guard.kind, guard.payload, lambda: guard.line)

    def assume(self, source: Source | None, kind: str, payload: Any, line: Callable[[], UserLine | None]) -> None:
        """Add a guard, unless the set has it. `line` finds the user's line, and is called only for a new guard."""
        key: tuple[Any, ...] = (source, kind, type(payload), payload)
        try:
            known = key in self._seen
        except TypeError:  # the payload has no hash
            key = (source, kind, "id", id(payload))
            known = key in self._seen
        if not known:
            self._seen.add(key)
            self._guards.append(Guard(source, kind, payload, line()))

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards)

    def __len__(self) -> int:
        return len(self._guards)
