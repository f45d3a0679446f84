"""Vars for `property`, `staticmethod`, `classmethod` and `types.MappingProxyType` objects used as values: creating
these objects, reading their parts and passing them around.

What such a descriptor does when an attribute is read or written is elsewhere: in `binding` for access through an
instance, in `classes` for access through the class.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import AttrSource, DictItemSource, Source
from ..codegen import Codegen
from ..protocol import dunder, slots
from ..protocol.base import Var
from ..protocol.const import ConstVar, MethodVar, attribute_of_type, make
from ..registry import Handler, register
from ..tracer import Tracer
from .functions import BoundMethodVar

ACCESSORS = ("fget", "fset", "fdel")


class PropertyVar(Var):
    """`property(fget, fset, fdel, doc)`; a missing accessor is None."""

    __slots__ = ("accessors", "attrs", "doc")

    def __init__(self, accessors: Sequence[Var | None], doc: Var | None = None, source: Source | None = None) -> None:
        super().__init__(source)
        self.accessors, self.doc = tuple(accessors), doc
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return property

    def truth(self, tx: Tracer) -> bool:
        return True

    def _accessor(self, name: str) -> Var | None:
        return self.accessors[ACCESSORS.index(name)]

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ACCESSORS:
            return self._accessor(name) or ConstVar(None)
        if name == "__doc__":
            fget = self._accessor("fget")
            return self.doc or (fget.getattr_(tx, name) if fget is not None else ConstVar(None))
        if name == "__isabstractmethod__":
            flagged = (fn for fn in self.accessors if fn is not None and tx.has_attribute(fn, name))
            return ConstVar(any(fn.getattr_(tx, name).truth(tx) for fn in flagged))
        if name == "__class__":
            return make(property)
        if not hasattr(property, name):
            tx.raise_(AttributeError, f"'property' object has no attribute {name!r}")
        return attribute_of_type(tx, self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        replaced = {"getter": 0, "setter": 1, "deleter": 2}.get(name)
        if replaced is not None and self.source is not None and self.doc is not None:
            return self.unsupported(tx, f"{name}(): whether its text is that of the getter only the property knows,")
        if replaced is not None and len(args) == 1:
            accessors = [args[0] if place == replaced else fn for place, fn in enumerate(self.accessors)]
            return PropertyVar(accessors, self.doc)
        used = {"__get__": "fget", "__set__": "fset", "__delete__": "fdel"}.get(name)
        if used is not None and args:
            if name == "__get__" and slots.constant_or(args[0], 0) is None:
                return self
            fn = self._accessor(used)
            if fn is None:
                missing = {"fget": "getter", "fset": "setter", "fdel": "deleter"}[used]
                tx.raise_(AttributeError, f"property of {slots.type_name(args[0])!r} object has no {missing}")
            return tx.call(fn, args[:1] if name == "__get__" else args, {})
        return self.unsupported(tx, f"method {name!r}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(property)
        cg.call_top(*(lambda part=part: cg.load(part or ConstVar(None)) for part in (*self.accessors, self.doc)))


# Attributes that staticmethod and classmethod copy from the function.
_COPIED = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__annotate__")


class WrappedFunctionVar(Var):
    """`kind(fn)`, where `kind` is staticmethod or classmethod."""

    __slots__ = ("attrs", "fn", "held", "kind")

    def __init__(self, kind: type, fn: Var, source: Source | None = None, held: Any = None) -> None:
        super().__init__(source)
        self.kind, self.fn, self.held = kind, fn, held  # `held`: the real object, if it existed before the trace
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return self.kind

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("__func__", "__wrapped__"):
            return self.fn
        if name == "__class__":
            return make(self.kind)
        if name == "__isabstractmethod__":
            return self.fn.getattr_(tx, name) if tx.has_attribute(self.fn, name) else ConstVar(False)
        if name in ("__get__", "__call__") and hasattr(self.kind, name):
            return MethodVar(self, name)
        place = AttrSource(self.source, "__dict__") if self.source is not None else None
        if name == "__dict__" and self.held is not None:
            return tx.wrap(vars(self.held), place)
        if self.held is not None and name in vars(self.held):
            return tx.wrap(vars(self.held)[name], DictItemSource(place, name) if place is not None else None)
        if self.held is None and name in _COPIED:
            return self.fn.getattr_(tx, name)
        if any(name in vars(cls) for cls in self.kind.__mro__):  # not hasattr: it finds metaclass attributes
            return self.unsupported(tx, f"attribute {name!r}")
        if self.source is not None:
            tx.guard(self.source, "NO_ATTR", name)
        return tx.raise_(AttributeError, f"{self.kind.__name__!r} object has no attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "__call__":
            return self.call(tx, args, kwargs)
        if name != "__get__":
            return tx.call(self.getattr_(tx, name), args, kwargs)
        if self.kind is staticmethod:
            return self.fn
        return BoundMethodVar(self.fn, args[1] if len(args) > 1 else make(args[0].python_type()))

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if self.kind is classmethod:
            tx.raise_(TypeError, "'classmethod' object is not callable")
        return tx.call(self.fn, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.kind)
        cg.call_top(lambda: cg.load(self.fn))


class ProxyVar(Var):
    """`types.MappingProxyType(mapping)`: reads go to the mapping."""

    __slots__ = ("attrs", "mapping")

    def __init__(self, mapping: Var, source: Source | None = None) -> None:
        super().__init__(source)
        self.mapping = mapping
        self.attrs: dict[str, Var] = {}

    def python_type(self) -> type:
        return types.MappingProxyType

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "__class__":
            return make(types.MappingProxyType)
        if not hasattr(types.MappingProxyType, name):
            tx.raise_(AttributeError, f"'mappingproxy' object has no attribute {name!r}")
        return attribute_of_type(tx, self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in ("get", "keys", "values", "items", "copy", "__reversed__"):
            return self.mapping.call_method(tx, name, args, kwargs)
        found = dunder.call(tx, self, name, args)
        return self.unsupported(tx, f"method {name!r}") if found is None else found

    def getitem(self, tx: Tracer, key: Var) -> Var:
        return self.mapping.getitem(tx, key)

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        doing = "assignment" if value is not None else "deletion"
        verb = "does not" if value is not None else "doesn't"
        tx.raise_(TypeError, f"'mappingproxy' object {verb} support item {doing}")

    def contains(self, tx: Tracer, item: Var) -> bool:
        return self.mapping.contains(tx, item)

    def length(self, tx: Tracer) -> Var:
        return self.mapping.length(tx)

    def truth(self, tx: Tracer) -> bool:
        return self.mapping.truth(tx)

    def iterate(self, tx: Tracer) -> Var:
        return self.mapping.iterate(tx)

    def unpack(self, tx: Tracer) -> list[Var]:
        return self.mapping.unpack(tx)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return self.mapping.compare(tx, op, other.mapping if isinstance(other, ProxyVar) else other)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op == "|=":
            tx.raise_(TypeError, "'|=' is not supported by mappingproxy; use '|' instead")
        other = other.mapping if isinstance(other, ProxyVar) else other
        return slots.binary(tx, op, other, self.mapping) if reflected else slots.binary(tx, op, self.mapping, other)

    def hash_(self, tx: Tracer) -> Var | None:
        return tx.raise_(TypeError, "unhashable type: 'mappingproxy'")

    def repr_(self, tx: Tracer) -> Var | None:
        inner = self.mapping.repr_(tx)
        return None if inner is None else ConstVar(f"mappingproxy({inner.constant()})")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(types.MappingProxyType)
        cg.call_top(lambda: cg.load(self.mapping))


@register(property)
def _property(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    parts = [*args, *[None] * (4 - len(args))]
    for place, name in enumerate((*ACCESSORS, "doc")):
        parts[place] = kwargs.get(name, parts[place])
    *accessors, doc = [None if part is None or slots.constant_or(part, 0) is None else part for part in parts]
    return PropertyVar(accessors, doc)


def _wrapped(kind: type) -> Handler:
    def make_it(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        if kwargs:
            tx.raise_(TypeError, f"{kind.__name__}() takes no keyword arguments")
        if len(args) != 1:
            tx.raise_(TypeError, f"{kind.__name__} expected 1 argument, got {len(args)}")
        return WrappedFunctionVar(kind, args[0])

    return make_it


for _kind in (staticmethod, classmethod):
    register(_kind)(_wrapped(_kind))


@register(types.MappingProxyType)
def _proxy(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    mapping = args[0] if args else kwargs["mapping"]
    if not slots.has_type(mapping, object) or not slots.has_method(mapping, "keys"):
        tx.raise_(TypeError, f"mappingproxy() argument must be a mapping, not {slots.type_name(mapping)}")
    return ProxyVar(mapping)


def wrap_descriptor(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a property, staticmethod or classmethod that existed before the trace."""
    tx.guard(source, "TYPE", type(value))

    def part(name: str) -> Var:
        return tx.wrap(getattr(value, name), AttrSource(source, name) if source else None)

    if type(value) is property:
        accessors = [None if getattr(value, name) is None else part(name) for name in ACCESSORS]
        return PropertyVar(accessors, ConstVar(value.__doc__), source)
    return WrappedFunctionVar(type(value), part("__func__"), source, value)
