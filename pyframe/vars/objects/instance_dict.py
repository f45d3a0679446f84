"""`obj.__dict__` of an instance, as a Var that reads and writes the attributes of the InstanceVar.

Also builds the messages of AttributeErrors for objects with `__slots__`, which differ between CPython versions.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Mapping
from typing import Any

from ...core.python_compat import full_name
from ...core.source import AttrSource, HiddenDictSource, InstanceDictSource, Source
from ..codegen import Codegen
from ..containers.mapping import DictVar, key_of, pairs_of
from ..protocol.base import Var
from ..protocol.class_reads import lookup, reads_attributes_itself, wins_over_fields
from ..tracer import Tracer


def dict_source(source: Source | None, cls: type) -> Source | None:
    """The source of the `__dict__` of an object of `cls`.  A `threading.local` has one for each thread."""
    if source is None:
        return None
    if issubclass(cls, threading.local):
        return AttrSource(source, "__dict__")
    return (HiddenDictSource if reads_attributes_itself(cls) else InstanceDictSource)(source)


def fields_of(value: Any) -> dict[str, Any] | None:
    """The `__dict__` of an object, bypassing attribute hooks of its class; None if it has none."""
    if issubclass(type(value), threading.local):
        return value.__dict__
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def is_hidden(cls: type, name: str) -> bool:
    """Whether a data descriptor of `cls` handles assignments to `name`, so that only its code writes the item of
    `__dict__` that has this name."""
    raw = lookup(cls, name)
    builtin = isinstance(raw, types.MemberDescriptorType | types.GetSetDescriptorType)
    return not builtin and wins_over_fields(type(raw))


def set_in_dict(obj: Any, name: str, value: Any) -> None:
    """`obj.__dict__[name] = value`, bypassing attribute hooks and descriptors of the class."""
    fields = fields_of(obj)
    assert fields is not None
    fields[name] = value


def delete_from_dict(obj: Any, name: str) -> None:
    """Remove `name` from `obj.__dict__`, if it is there."""
    fields = fields_of(obj)
    assert fields is not None
    fields.pop(name, None)


def has_dict(cls: type) -> bool:
    """Whether objects of `cls` have a `__dict__`, so that any attribute can be set."""
    return cls.__dictoffset__ != 0 or issubclass(cls, threading.local)


def _no_dict_message() -> str:
    """The message of this CPython, as a template, for setting or deleting an attribute on an object without `__dict__`.

    CPython 3.13 and later mention the missing `__dict__`.
    """
    try:
        object().attribute = None  # type: ignore[attr-defined]
    except AttributeError as error:
        return str(error).replace("'object'", "{cls!r}").replace("'attribute'", "{name!r}")
    raise AssertionError("objects of `object` have no attributes")


_NO_SLOT = _no_dict_message()


def no_slot_message(cls: type, name: str) -> str:
    """The message of the AttributeError for an object of `cls` that has neither a `__dict__` nor a slot `name`."""
    return _NO_SLOT.format(cls=cls.__name__, name=name)


class _Empty:
    """A class whose name and full name differ, to learn which of them the message for an empty slot contains."""

    __slots__ = ("a",)
    __module__ = "m"
    __qualname__ = "C.D"


def _named_in_full() -> bool:
    try:
        _Empty().a  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        return "'m.C.D'" in str(error)
    raise AssertionError("a slot that was never set has a value")


_IN_FULL = _named_in_full()  # from CPython 3.13 on


def empty_slot_message(cls: type, name: str) -> str:
    """The message of the AttributeError for reading a slot of `cls` that holds nothing."""
    shown = cls.__name__
    if _IN_FULL:
        shown = full_name(cls)
    return f"{shown!r} object has no attribute {name!r}"


class FieldsVar(DictVar):
    """The `__dict__` of `owner`: a live view, as `items` is computed from the attributes at each read. `was_read`:
    whether all items have been read, so that they have guards."""

    __slots__ = ("owner", "tx", "was_read")

    def __init__(self, owner: Any, tx: Tracer) -> None:
        self.owner, self.tx, self.was_read = owner, tx, False
        self.source = dict_source(owner.source, owner.python_type())
        self.cls, self.factory, self.fields = dict, None, {}

    @property
    def items(self) -> Mapping[Any, Var]:  # type: ignore[override]
        self.was_read = True
        return self.owner.fields(self.tx)

    def find(self, tx: Tracer, where: Any) -> Var | None:
        return self.owner.field(tx, where) if self.was_read and type(where) is str else self.items.get(where)

    def changed(self, tx: Tracer) -> None:
        self.unsupported(tx, "this change of __dict__")

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        name = key_of(tx, key)
        if not isinstance(name, str):
            self.unsupported(tx, "a key that is no string")
        if value is None and name not in self.items:
            tx.raise_(KeyError, key)
        self.owner.set_field(tx, name, value)

    def update(self, tx: Tracer, other: Var) -> None:
        self._set_all(tx, dict(pairs_of(tx, other)))

    def _update(self, tx: Tracer, other: Var | None = None, /, **kwargs: Var) -> None:
        self._set_all(tx, {**(dict(pairs_of(tx, other)) if other is not None else {}), **kwargs})

    def _set_all(self, tx: Tracer, values: Mapping[Any, Var]) -> None:
        if not all(isinstance(name, str) for name in values):
            self.unsupported(tx, "a key that is no string")
        for name, value in values.items():
            self.owner.set_field(tx, name, value)

    def _pop(self, tx: Tracer, key: Var, default: Var | None = None) -> Var:
        name, held = key_of(tx, key), self.items
        if name not in held:
            return tx.raise_(KeyError, key) if default is None else default
        self.owner.set_field(tx, name, None)
        return held[name]

    def _popitem(self, tx: Tracer, last: Var | None = None) -> Var:
        return self.unsupported(tx, "popitem() of __dict__")

    def _clear(self, tx: Tracer) -> None:
        for name in self.items:
            self.owner.set_field(tx, name, None)

    @classmethod
    def of(cls, owner: Any, tx: Tracer) -> FieldsVar:
        """The `__dict__` Var of `owner`; the same Var each time, as `obj.__dict__ is obj.__dict__`."""
        found = tx.fields_of.get(id(owner))
        if found is None:
            found = tx.fields_of[id(owner)] = cls(owner, tx)
        return found

    def reconstruct(self, cg: Codegen) -> None:
        if reads_attributes_itself(self.owner.python_type()):
            cg.load_const(object.__getattribute__)
            cg.call_top(lambda: cg.load(self.owner), lambda: cg.load_const("__dict__"))
            return
        cg.load(self.owner)
        cg.emit("LOAD_ATTR", "__dict__")
