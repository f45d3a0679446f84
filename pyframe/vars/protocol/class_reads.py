"""What a trace reads of classes: raw attributes along the MRO, as CPython finds them; one guard for each class."""

from __future__ import annotations

import contextlib
import threading
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from ...core.guard import ClassReads
from ...core.tracer import Tracer

MISSING = object()
_flags = type.__dict__["__flags__"].__get__
_mro, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__  # whatever a metaclass says


class _Reading(threading.local):
    """What the trace that this thread is at has read of classes, which may change: class -> name -> what was found."""

    reads: dict[type, dict[str, Any]] | None = None


_reading = _Reading()
PLAIN = (int, float, bool, str, list, dict, set, deque)
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def lookup(cls: type, name: str) -> Any:
    """The raw attribute found along the MRO, or MISSING.  What a trace finds becomes a guard of it."""
    reads = _reading.reads
    if reads is None or is_immutable(cls):
        return _find(cls, name)
    found = _find(cls, name)
    reads.setdefault(cls, {}).setdefault(name, found)
    return found


def _find(cls: type, name: str) -> Any:
    for base in _mro(cls):
        held = _table(base)
        if name in held:
            return held[name]
    return MISSING


def is_immutable(cls: type) -> bool:
    """Whether no attribute of a class can be set: it is written in C."""
    return bool(_flags(cls) & _IMMUTABLE)


def note_class(cls: type) -> None:
    """A trace relies on the metaclass and the MRO of a class."""
    if _reading.reads is not None and not is_immutable(cls):
        _reading.reads.setdefault(cls, {})


@contextlib.contextmanager
def reads_of_classes(reads: dict[type, dict[str, Any]]) -> Iterator[None]:
    """Puts what `lookup` is asked meanwhile into `reads`."""
    before, _reading.reads = _reading.reads, reads
    try:
        yield
    finally:
        _reading.reads = before


def class_reads(tx: Tracer, cls: type, found: dict[str, Any]) -> ClassReads:
    """The payload of a guard on what was found of a class.  Numbers and containers may be others of their types: where
    one was used, it is guarded itself.  What the program assigns to the class is another one at each call."""
    entries: list[Any] = []
    written = {name for base in _mro(cls) if base in tx.class_writes for name in tx.class_writes[base].attrs}
    for name, raw in found.items():
        if raw is not MISSING and name in written:
            continue
        if raw is MISSING:
            entries += (name, 0, None)
        elif type(raw) in PLAIN:
            entries += (name, 2, type(raw))
        else:
            entries += (name, 1, raw)
    return ClassReads(type(cls), _mro(cls), tuple(entries))


def reads_attributes_itself(cls: type) -> bool:
    """Whether attributes of an instance of `cls` are read by a `__getattribute__` that no type written in C has."""
    return not isinstance(lookup(cls, "__getattribute__"), types.WrapperDescriptorType)
