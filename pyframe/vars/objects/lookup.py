"""Looks up class attributes for the Vars of classes and instances, on top of `protocol.class_reads.lookup`.

`class_reads` finds the raw attribute along the MRO and records it for a guard. This module breaks the graph if the
traced program itself has changed the attribute, tells whether an attribute of a class takes precedence over the
instance `__dict__` (data descriptors), and gives the Var of the function behind a method.
"""

from __future__ import annotations

import types
from typing import Any

from ... import _C
from ...core.source import AttrSource, ConstSource, Source
from ..protocol.base import Var
from ..protocol.class_reads import (
    MISSING,
    class_reads,
    is_immutable,
    lookup,
    note_class,
    reads_attributes_itself,
    reads_of_classes,
    wins_over_fields,
)
from ..tracer import Tracer
from .functions import FunctionVar


def defined_in(function: types.FunctionType, *modules: types.ModuleType | None) -> bool:
    """Whether one of these modules defined the function. Its `__module__` does not say so: decorators copy it."""
    return any(module is not None and function.__globals__ is vars(module) for module in modules)


# Types that bind to an instance as Python functions do: also functions that were compiled or disabled.
FUNCTIONS = (types.FunctionType, _C.CompiledFunction, _C.DisabledFunction)
# Descriptors and functions that C code defines for a class.
_FIXED = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.BuiltinFunctionType,
)  # fmt: skip


def written_in_class(tx: Tracer, cls: type, name: str) -> Any:
    """The value that the traced program gave the attribute `name` of an existing class: a Var, None if it deleted the
    attribute, MISSING if it did not change it."""
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
    """Like `lookup`, but breaks the graph if the traced program itself has changed the attribute."""
    raw = lookup(cls, name)
    if written_in_class(tx, cls, name) is not MISSING:
        tx.graph_break("unsupported-object", f"{cls.__qualname__}.{name}, which the program has changed")
    return raw


def reads_before_fields(kind: type) -> bool:
    """Whether a class attribute of this type takes precedence over the instance `__dict__` on reads.

    True for data descriptors that have `__get__`.
    """
    return wins_over_fields(kind) and lookup(kind, "__get__") is not MISSING


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
    """The Var of a function reached only through an object that is guarded already."""
    if isinstance(fn, types.FunctionType) and id(fn) not in tx.placeholder_objects:
        return FunctionVar(fn, ConstSource.of(fn, fn.__qualname__))
    return tx.wrap(fn, ConstSource.of(fn, getattr(fn, "__name__", "function")))


__all__ = [
    "FUNCTIONS", "MISSING", "class_function", "class_reads", "class_source", "constant_function", "guarded_lookup",
    "is_immutable", "lookup", "note_class", "reads_attributes_itself", "reads_before_fields", "reads_of_classes",
    "wins_over_fields", "written_in_class",
]  # fmt: skip
