"""What the traces of this thread rely on beyond what their guards test: facts of this process that are constants of a
capture. Captures themselves need no guards for them, since the facts do not change while the process lives. The frame
cache, which keeps captures for other processes, refuses a capture that relies on a fact that it does not know."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


class _Reliances(threading.local):
    calls: dict[int, Any] | None = None  # what a trace has called or found a model for, by id
    facts: dict[str, None] | None = None
    made: dict[int, tuple[Any, tuple[Any, ...]]] | None = None
    fields: dict[int, type] | None = None


_now = _Reliances()


class Reliances:
    """`calls`: objects whose model or code in C a trace has run or looked up. `facts`: other facts of the process, in
    words. `made`: objects that the trace made of others, by id, with how: a name and its operands. `fields`:
    dataclasses whose list of fields the trace has read, by id."""

    def __init__(self) -> None:
        self.calls: dict[int, Any] = {}
        self.facts: dict[str, None] = {}
        self.made: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self.fields: dict[int, type] = {}

    def mark(self) -> tuple[int, int]:
        """What `forget_since` needs: how much has been noted so far."""
        return len(self.calls), len(self.facts)

    def forget_since(self, mark: tuple[int, int]) -> None:
        """Forget the calls and facts noted since `mark`, because the instruction that relied on them is executed at run
        time instead."""
        notes: tuple[dict[Any, Any], dict[Any, Any]] = self.calls, self.facts
        for noted, count in zip(notes, mark, strict=True):
            for _ in range(len(noted) - count):
                noted.popitem()


def note_call(target: Any) -> None:
    """The trace in this thread runs a model of `target`, or calls it."""
    if _now.calls is not None:
        _now.calls[id(target)] = target


def note_fact(what: str) -> None:
    """The trace in this thread relies on a fact of this process, described by `what`."""
    if _now.facts is not None:
        _now.facts[what] = None


def note_made(value: Any, *how: Any) -> None:
    """The trace in this thread has made `value`, an object that nothing else refers to, as `how` says."""
    if _now.made is not None:
        _now.made[id(value)] = (value, how)


def note_fields(cls: type) -> None:
    """The trace in this thread reads the list of the fields of a dataclass."""
    if _now.fields is not None:
        _now.fields[id(cls)] = cls


@contextlib.contextmanager
def recorded_reliances() -> Iterator[Reliances]:
    """What the trace within this block relies on."""
    found, before = Reliances(), (_now.calls, _now.facts, _now.made, _now.fields)
    _now.calls, _now.facts, _now.made, _now.fields = found.calls, found.facts, found.made, found.fields
    try:
        yield found
    finally:
        _now.calls, _now.facts, _now.made, _now.fields = before
