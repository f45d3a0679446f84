"""Vars for instances of namedtuple classes and of C struct sequences such as `torch.return_types.max`."""

from __future__ import annotations

import collections
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import Source
from ..codegen import Codegen
from ..containers.sequence import TupleVar
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import constants, fold, make
from ..protocol.text import TextPlaceholder
from ..tracer import Tracer
from .functions import BoundMethodVar
from .instance_dict import no_slot_message
from .lookup import class_function, class_source, constant_function

FIELD: type = type(collections.namedtuple("_Probe", "a").a)  # type: ignore[attr-defined]


_SPECIAL = (
    "__getattribute__", "__getattr__", "__len__", "__getitem__", "__iter__", "__contains__", "__eq__", "__ne__",
    "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__add__", "__radd__", "__mul__", "__rmul__", "__bool__",
    "__reversed__", "__class__",
)  # fmt: skip


def acts_as_tuple(cls: type) -> bool:
    """Whether instances of a namedtuple class have no `__dict__` and the class overrides no operator of tuple."""
    if cls.__dictoffset__ != 0:
        return False
    return all(lookup(cls, name) is lookup(tuple, name) for name in _SPECIAL)


def is_plain_struct_sequence(cls: type) -> bool:
    """Whether the attributes of instances of `cls`, a class of C, are just the items of the tuple. `time.struct_time`
    has more attributes than items, `os.stat_result` other ones."""
    items = getattr(cls, "n_sequence_fields", None)
    return items is not None and items == getattr(cls, "n_fields", None) and not getattr(cls, "n_unnamed_fields", 0)


def new_struct_sequence(tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`cls(sequence)` of a class for which `is_plain_struct_sequence` holds."""
    given = [*args, *kwargs.values()]
    if len(given) == 1 and {*kwargs} <= {"sequence"}:
        if not slots.has_method(given[0], "__iter__") and not slots.has_method(given[0], "__getitem__"):
            tx.raise_(TypeError, "constructor requires a sequence")
        items = given[0].unpack(tx)
        if len(items) == cls.n_sequence_fields:  # type: ignore[attr-defined]
            return NamedTupleVar(cls, items)
        given = [make((None,) * len(items))]
    return fold(tx, cls, *(arg.constant() for arg in given))  # raises an error


class NamedTupleVar(TupleVar):
    """A tuple whose items are also attributes.  Methods written in Python, including the generated ones, are traced."""

    __slots__ = ("cls",)

    def __init__(self, cls: type, items: Sequence[Var], source: Source | None = None) -> None:
        super().__init__(items, source)
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    @property
    def fields(self) -> tuple[str, ...]:
        named = getattr(self.cls, "_fields", None)
        if named is not None:
            return tuple(named)
        return tuple(n for n, v in vars(self.cls).items() if isinstance(v, types.MemberDescriptorType))

    def constant(self) -> Any:
        values = constants(self.items)
        return tuple.__new__(self.cls, values) if hasattr(self.cls, "_fields") else self.cls(values)

    def plain(self) -> Any:
        return tuple.__new__(self.cls, [item.plain() for item in self.items]) if self._named() else super().plain()

    def _named(self) -> bool:
        return hasattr(self.cls, "_fields")

    def repr_(self, tx: Tracer) -> Var | None:
        method = self._python_method(tx, "__repr__")
        if method is not None:
            return tx.call(method, [], {})
        return fold(tx, repr, self.cls([TextPlaceholder(tx, item) for item in self.items]))

    def str_(self, tx: Tracer) -> Var | None:
        method = self._python_method(tx, "__str__")
        return self.repr_(tx) if method is None else tx.call(method, [], {})

    def _python_method(self, tx: Tracer, name: str) -> Var | None:
        found = lookup(self.cls, name)
        if not isinstance(found, types.FunctionType):
            return None
        return BoundMethodVar(tx.wrap(found, class_source(self.cls, name)), self)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        found = lookup(self.cls, name)
        if name in self.fields and (isinstance(found, FIELD) or not self._named()):
            return self.items[self.fields.index(name)]
        if found is MISSING:
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if isinstance(found, property):
            return tx.call(constant_function(tx, found.fget), [self], {})
        if isinstance(found, types.FunctionType):
            return BoundMethodVar(tx.wrap(found, class_source(self.cls, name)), self)
        if isinstance(found, classmethod):
            return BoundMethodVar(class_function(tx, self.cls, name, found), make(self.cls))
        if isinstance(found, staticmethod):
            return class_function(tx, self.cls, name, found)
        if hasattr(tuple, name):
            return super().getattr_(tx, name)
        if hasattr(type(found), "__get__"):
            return self.unsupported(tx, f"attribute {name!r}")
        return tx.wrap(found, class_source(self.cls, name))

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        if "__dict__" in dir(self.cls) or "__setattr__" in vars(self.cls):
            self.unsupported(tx, f"setting attribute {name!r}")
        if lookup(self.cls, name) is MISSING:
            tx.raise_(AttributeError, no_slot_message(self.cls, name))
        if name in self.fields:
            tx.raise_(AttributeError, "can't set attribute" if value is not None else "can't delete attribute")
        self.unsupported(tx, f"setting attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        found = lookup(self.cls, name)
        if isinstance(found, types.FunctionType | classmethod | staticmethod) or name in self.fields:
            return tx.call(self.getattr_(tx, name), args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if self._named():
            cg.load_const(tuple.__new__)
            cg.call_top(lambda: cg.load_const(self.cls), lambda: cg.sequence("BUILD_TUPLE", self.items))
        else:
            cg.load_const(self.cls)
            cg.call_top(lambda: cg.sequence("BUILD_TUPLE", self.items))
