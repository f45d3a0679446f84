"""Attributes of classes as CPython finds them: raw, along the MRO, with a guard that they stay what they are."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from .. import _C
from ..core.source import AttrSource, ConstSource, Source
from ..core.tracer import Tracer
from .base import Var
from .function import FunctionVar

MISSING = object()
# What binds to an instance as a function does: Python's own, and those that were compiled or disabled.
FUNCTIONS = (types.FunctionType, _C.CompiledFunction, _C.DisabledFunction)
_mro, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__  # whatever a metaclass says
# What C keeps for a class: no program replaces these.
_FIXED = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.BuiltinFunctionType,
)  # fmt: skip


def lookup(cls: type, name: str) -> Any:
    """The raw attribute found along the MRO, or MISSING."""
    for base in _mro(cls):
        held = _table(base)
        if name in held:
            return held[name]
    return MISSING


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


def _wins_over_fields(kind: type) -> bool:
    """Whether an attribute of this type in a class is a data descriptor."""
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


wins_over_fields: Callable[[type], bool] = functools.lru_cache(maxsize=1024)(_wins_over_fields)


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
