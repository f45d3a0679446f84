"""Guards for `isinstance` and `issubclass` checks against abstract base classes.

The answer of such a check can change when a class is registered, when a hook answers differently, or when the
attributes of a class change.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from ...core.same_answer import SameAnswer
from ...core.source import ConstSource
from ..protocol.class_reads import lookup, note_class
from ..tracer import Tracer


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
        same = SameAnswer(ask, kind, cls)
    except Exception as error:  # noqa: BLE001  a hook of the program may raise anything
        tx.graph_break("unsupported-object", f"{type(error).__name__} of issubclass({kind.__name__}, {cls.__name__})")
    tx.guard(source, "PREDICATE", (same, (), text))
