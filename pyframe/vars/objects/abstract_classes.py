"""Guards for `isinstance` and `issubclass` checks against abstract base classes.

The answer of such a check can change when a class is registered, when a hook answers differently, or when the
attributes of a class change.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from ...core.source import ConstSource
from ..protocol.class_reads import lookup, note_class
from ..tracer import Tracer


class _SameAnswer:
    """Guard predicate: `ask(kind, cls)` has the same result.  Evaluated again only after some class was registered with
    any ABC (the ABC cache token has changed)."""

    def __init__(self, ask: Callable[[type, type], bool], kind: type, cls: type) -> None:
        self.ask, self.kind, self.cls = ask, kind, cls
        self.answer, self.token = ask(kind, cls), abc.get_cache_token()

    def __call__(self, _: Any) -> bool:
        token = abc.get_cache_token()
        if token == self.token:
            return True
        if self.ask(self.kind, self.cls) is not self.answer:
            return False
        self.token = token
        return True

    def __hash__(self) -> int:
        return hash((self.ask, id(self.kind), id(self.cls)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameAnswer) and self.kind is other.kind and self.cls is other.cls


def guard_answer(tx: Tracer, ask: Callable[[type, type], bool], kind: type, cls: Any) -> None:
    """Guard the answer of `ask(kind, cls)` if `cls` is an abstract base class; else guard just the classes' MROs."""
    if not isinstance(cls, type):
        return
    note_class(cls)
    note_class(kind)
    if not isinstance(cls, abc.ABCMeta):
        return
    lookup(cls, "__subclasshook__")
    lookup(cls, "_abc_impl")  # read by C code
    for name in getattr(cls, "__abstractmethods__", ()):
        lookup(kind, name)
    source = ConstSource.of(cls, cls.__name__)
    text = f"issubclass({kind.__name__}, {cls.__name__}) is unchanged"
    try:
        same = _SameAnswer(ask, kind, cls)
    except Exception as error:  # noqa: BLE001  a hook of the program may raise anything
        tx.graph_break("unsupported-object", f"{type(error).__name__} of issubclass({kind.__name__}, {cls.__name__})")
    tx.guard(source, "PREDICATE", (same, (), text))
