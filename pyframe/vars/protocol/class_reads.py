"""Looks up raw attributes of classes, and collects what was found for guards.

`lookup` follows the MRO as CPython does but runs no code of the program: no descriptor, and no `__getattribute__` or
`__getattr__` of a metaclass. All lookups of a trace on one class become a single CLASS_FINDS guard on that class.
`objects.lookup` adds what Vars need beyond this, such as a check for attributes that the traced program has changed.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.guard import ClassReads
from ..tracer import Tracer

MISSING = object()
_flags = type.__dict__["__flags__"].__get__
# Read through the slots of `type`, since a metaclass may override `__mro__` and `__dict__`.
_mro, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__


class _Reading(threading.local):
    """Class attributes read by the trace that runs in this thread: mutable class -> name -> raw attribute or MISSING.
    `reads` is None when no trace runs."""

    reads: dict[type, dict[str, Any]] | None = None


_reading = _Reading()
PLAIN = (int, float, bool, str, list, dict, set, deque)
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def lookup(cls: type, name: str) -> Any:
    """The raw attribute found along the MRO, or MISSING.  During a trace the result is recorded for a guard, unless the
    class is immutable."""
    found = _find(cls, name)
    reads = _reading.reads
    if reads is None:
        return found
    known = reads.get(cls)
    if known is None:
        if is_immutable(cls):
            return found
        known = reads[cls] = {}
    known.setdefault(name, found)
    return found


def wins_over_fields(kind: type) -> bool:
    """Whether an attribute of this type in a class is a data descriptor."""
    return lookup(kind, "__set__") is not MISSING or lookup(kind, "__delete__") is not MISSING


def _find(cls: type, name: str) -> Any:
    for base in _mro(cls):
        held = _table(base)
        if name in held:
            return held[name]
    return MISSING


def is_immutable(cls: type) -> bool:
    """Whether the attributes of a class cannot be set (Py_TPFLAGS_IMMUTABLETYPE: most classes written in C)."""
    return bool(_flags(cls) & _IMMUTABLE)


def note_class(cls: type) -> None:
    """Record that the trace depends on the metaclass and the MRO of a class, even if it reads no attribute."""
    if _reading.reads is not None and not is_immutable(cls):
        _reading.reads.setdefault(cls, {})


@contextlib.contextmanager
def reads_of_classes(reads: dict[type, dict[str, Any]]) -> Iterator[None]:
    """Within this context, `lookup` records its results in `reads`."""
    before, _reading.reads = _reading.reads, reads
    try:
        yield
    finally:
        _reading.reads = before


def class_reads(tx: Tracer, cls: type, found: dict[str, Any]) -> ClassReads:
    """The payload of a CLASS_FINDS guard on the attributes found on a class.

    For values of PLAIN types only the type is checked: a value that the trace used has a guard of its own.  Attributes
    that the traced program assigns are left out, because each call assigns a different object."""
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


def with_reads_of_bases(reads: dict[type, dict[str, Any]], created: Mapping[int, Any]) -> dict[type, dict[str, Any]]:
    """`reads` and, for each attribute read of a class that the traced program created (`created` has their ids), what
    its bases that existed before have for it, up to the class that defines it."""
    result = {cls: dict(found) for cls, found in reads.items()}
    for cls, found in reads.items():
        if id(cls) not in created:
            continue
        for name in found:
            for base in _mro(cls):
                if id(base) not in created and not is_immutable(base):
                    result.setdefault(base, {}).setdefault(name, _find(base, name))
                if name in _table(base):
                    break
    return result


def reads_attributes_itself(cls: type) -> bool:
    """Whether `cls` or a base overrides `__getattribute__` in Python."""
    return not isinstance(lookup(cls, "__getattribute__"), types.WrapperDescriptorType)
