"""Attributes of classes as CPython finds them: raw, along the MRO, with a guard that they stay what they are."""

from __future__ import annotations

import contextlib
import threading
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from .. import _C
from ..core.guard import ClassReads
from ..core.source import AttrSource, ConstSource, Source
from ..core.tracer import Tracer
from .base import Var
from .function import FunctionVar

MISSING = object()
# What binds to an instance as a function does: Python's own, and those that were compiled or disabled.
FUNCTIONS = (types.FunctionType, _C.CompiledFunction, _C.DisabledFunction)
_flags = type.__dict__["__flags__"].__get__
_mro, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__  # whatever a metaclass says
# What C keeps for a class: no program replaces these.
_FIXED = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.BuiltinFunctionType,
)  # fmt: skip


class _Reading(threading.local):
    """What the trace that this thread is at has read of classes, which may change: class -> name -> what was found."""

    reads: dict[type, dict[str, Any]] | None = None


_reading = _Reading()
_VALUES = (int, float, bool, str, list, dict, set, deque)
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def lookup(cls: type, name: str) -> Any:
    """The raw attribute found along the MRO, or MISSING.  What a trace finds becomes a guard of it."""
    reads = _reading.reads
    if reads is None or _flags(cls) & _IMMUTABLE:
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


def note_class(cls: type) -> None:
    """A trace relies on the metaclass and the MRO of a class."""
    if _reading.reads is not None and not _flags(cls) & _IMMUTABLE:
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
    for name, raw in found.items():
        if any(name in tx.class_writes[base].attrs for base in _mro(cls) if base in tx.class_writes):
            continue
        if raw is MISSING:
            entries += (name, 0, None)
        elif type(raw) in _VALUES:
            entries += (name, 2, type(raw))
        else:
            entries += (name, 1, raw)
    return ClassReads(type(cls), _mro(cls), tuple(entries))


def written_in_class(tx: Tracer, cls: type, name: str) -> Any:
    """What the program has made of the attribute `name` of a class that existed: a Var, None where there is none any
    more, or MISSING where it is what it was."""
    if not tx.class_writes:
        return MISSING
    deleted = False
    for base in cls.__mro__:
        written = tx.class_writes.get(base)
        if written is not None and name in written.attrs:
            if written.attrs[name] is not None:
                return written.attrs[name]
            deleted = True
        elif name in base.__dict__:
            if deleted:
                tx.graph_break("unsupported-object", f"{cls.__qualname__}.{name}, of which one was deleted")
            return MISSING
    return None if deleted else MISSING


def class_source(cls: type, name: str) -> Source:
    return AttrSource(ConstSource.of(cls, cls.__name__), name)


def guarded_lookup(tx: Tracer, cls: type, name: str) -> Any:
    """`lookup`, with a guard that another capture is made once the class has something else there.  Functions and
    plain values are guarded when they are wrapped with `class_source`."""
    raw = lookup(cls, name)
    if written_in_class(tx, cls, name) is not MISSING:
        tx.graph_break("unsupported-object", f"{cls.__qualname__}.{name}, which the program has changed")
    source = class_source(cls, name)
    if raw is MISSING:
        kind = type(cls)
        if lookup(kind, name) is not MISSING or lookup(kind, "__getattr__") is not MISSING:  # of the metaclass
            tx.guard(ConstSource.of(cls, cls.__name__), "PREDICATE", (_Finds(name, raw), (), f"has no {name!r}"))
        else:
            tx.guard(ConstSource.of(cls, cls.__name__), "NO_ATTR", name)
    elif type(raw) is property:
        tx.guard(source, "ID", raw)
    elif isinstance(raw, (*FUNCTIONS, staticmethod, classmethod, *_FIXED)):
        pass
    elif hasattr(type(raw), "__get__") and not isinstance(raw, type):
        tx.guard(ConstSource.of(cls, cls.__name__), "PREDICATE", (_Finds(name, raw), (), f"its {name!r} is the same"))
    return raw


class _Finds:
    """Whether a class still has the same raw attribute; equal for the same question."""

    def __init__(self, name: str, raw: Any) -> None:
        self.name, self.raw = name, raw

    def __call__(self, cls: type) -> bool:
        return lookup(cls, self.name) is self.raw

    def __hash__(self) -> int:
        return hash((self.name, id(self.raw)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Finds) and (self.name, id(self.raw)) == (other.name, id(other.raw))


def wins_over_fields(kind: type) -> bool:
    """Whether an attribute of this type in a class is a data descriptor."""
    return lookup(kind, "__set__") is not MISSING or lookup(kind, "__delete__") is not MISSING


def class_function(tx: Tracer, cls: type, name: str, raw: Any) -> Var:
    """The function behind a method, staticmethod or classmethod that `lookup` found, guarded through the class."""
    source = class_source(cls, name)
    if isinstance(raw, classmethod):
        bound = isinstance(raw.__func__, types.FunctionType)
        own = lookup(type(raw.__func__), "__get__")
        if isinstance(own, types.FunctionType | staticmethod | classmethod) or isinstance(raw.__func__, property):
            return tx.graph_break("unsupported-object", f"{cls.__qualname__}.{name}, a classmethod of a descriptor,")
        return tx.wrap(raw.__func__, AttrSource(source, "__func__") if bound else None)
    return tx.wrap(raw.__func__ if isinstance(raw, staticmethod) else raw, source)


def constant_function(tx: Tracer, fn: Any) -> Var:
    """A function reached only through something that is guarded already."""
    if isinstance(fn, types.FunctionType) and id(fn) not in tx.stand_ins:
        return FunctionVar(fn, ConstSource.of(fn, fn.__qualname__))
    return tx.wrap(fn, ConstSource.of(fn, getattr(fn, "__name__", "function")))
