"""Guards: the assumptions a capture made, as data.

``Guard(source, kind, payload, line)`` has three readers that all go by ``KINDS``: ``guard_program`` lowers it to
the C program, ``guard_explain`` evaluates it in Python (the oracle) and words the message of a failure.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .source import Source


@dataclass(frozen=True, slots=True)
class UserLine:
    """A place in the user's code: what guards, breaks and errors quote."""

    filename: str
    lineno: int
    function: str
    text: str = ""  # the line itself; where it is not given, it is read from the file when asked for

    @property
    def quoted(self) -> str:
        """The line as the user wrote it, without indentation; "" where the source is not at hand."""
        return (self.text or linecache.getline(self.filename, self.lineno)).strip()

    def __str__(self) -> str:
        quoted = self.quoted
        return f"{self.filename}:{self.lineno} in {self.function}" + (f": `{quoted}`" if quoted else "")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of guard.  ``payload`` documents what the guard carries; ``cost`` orders cheap checks first."""

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


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """What is checked of a tensor.  ``sizes`` and ``strides`` hold ints, or None where any value will do
    (a dynamic dimension)."""

    type: type
    dtype: Any
    device: Any
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    requires_grad: bool
    dispatch_keys: int


@dataclass(frozen=True, slots=True, eq=False)
class ClassReads:
    """What a capture read of a class: its metaclass, its MRO, and what raw attributes it found along that.

    ``entries`` holds, one after another, a name, how it is compared, and an object: (name, 0, None) is found nowhere,
    (name, 1, raw) is that object, (name, 2, type) is an object of that type."""

    metaclass: type
    method_order: tuple[type, ...]  # the MRO
    entries: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Guard:
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
    """An ordered set of guards.  Order is the order of discovery, so that a guard on a container comes before
    the guards on its items, and evaluation never reads through something not yet checked."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []
        self._seen: set[tuple[Any, ...]] = set()

    def add(self, guard: Guard) -> None:
        payload = guard.payload
        key: tuple[Any, ...] = (guard.source, guard.kind, type(payload), payload)
        try:
            hash(key)
        except TypeError:
            key = (guard.source, guard.kind, "id", id(payload))
        if key not in self._seen:
            self._seen.add(key)
            self._guards.append(guard)

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards)

    def __len__(self) -> int:
        return len(self._guards)
