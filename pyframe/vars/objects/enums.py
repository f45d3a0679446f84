"""Vars for members of `enum.Enum` classes.

A member is a constant.  Its attributes and methods follow CPython's rules for instances, and every read is guarded.
"""

from __future__ import annotations

import enum
from typing import Any

from ...core.source import AttrSource, ConstSource, DictItemSource
from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, maker
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .builtin_instances import BuiltinInstanceVar, kind_of
from .instances import InstanceVar

SIMPLE = (str, int, float, complex, bytes)  # types that a member may also be an instance of and stay a constant


class _Member(InstanceVar):
    """Base of all members: a constant, whose operators are traced through the methods of its class."""

    __slots__ = ()

    def constant(self) -> Any:
        return self.value

    def plain(self) -> Any:
        return self.value

    def describe(self) -> str:
        return repr_of_member(self.value)

    def store(self, tx: Tracer, name: str, value: Var | None) -> None:
        self.unsupported(tx, f"setting attribute {name!r}")

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        make_flags(op, self, other)
        return super().binary(tx, op, other, reflected)

    def unary(self, tx: Tracer, op: str) -> Var:
        if op == "~" and isinstance(self.value, enum.Flag):
            enum.Flag.__invert__(self.value)  # which keeps the result in the member, as `make_flags` does
        return super().unary(tx, op)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


class EnumVar(_Member):
    """A member that is not also an instance of a built-in type."""

    __slots__ = ()

    def __init__(self, value: enum.Enum) -> None:
        super().__init__(value, ConstSource.of(value, repr_of_member(value)))


class NumberEnumVar(_Member, BuiltinInstanceVar):
    """A member that is also a number, str or bytes, such as those of `IntEnum`."""

    __slots__ = ()

    def __init__(self, value: Any, kind: type, held: Any) -> None:
        super().__init__(value, ConstSource.of(value, repr_of_member(value)), type(value), kind, ConstVar(held))


def repr_of_member(value: enum.Enum) -> str:
    """The qualified name of a member, bypassing a `__repr__` of its class."""
    fields = object.__getattribute__(value, "__dict__")
    return f"{type(value).__qualname__}.{fields.get('_name_')}"


_FLAG_OPERATORS = {"|": "__or__", "&": "__and__", "^": "__xor__"}


def make_flags(op: str, left: InstanceVar, right: Var) -> None:
    """Execute an operator on flags.

    `enum` creates the member for a combination at its first use and caches it; the traced operator then finds it.
    """
    if isinstance(left.value, enum.Flag) and op in _FLAG_OPERATORS and slots.has_type(right, type(left.value)):
        combine = getattr(enum.Flag, _FLAG_OPERATORS[op])
        if right.is_constant():
            combine(left.value, right.constant())


# Read the value of the built-in type from a member, bypassing overrides.
_CONTENTS: dict[type, Any] = {str: str.__str__, int: int.__int__, float: float.__float__, complex: complex.__complex__,
             bytes: bytes.__bytes__}  # fmt: skip


@maker(enum.Enum)
def member(value: Any) -> Var:
    """The Var of a member.  A member that is also a container is a plain constant."""
    kind = kind_of(type(value))
    if kind is None:
        return EnumVar(value)
    return NumberEnumVar(value, kind, _CONTENTS[kind](value)) if kind in SIMPLE else ConstVar(value)


# ---- member lookups, without tracing the methods of the metaclass ----


def _in_table(tx: Tracer, args: Args, table: str) -> Var | None:
    """The member under a constant key in the dict `table` of the class; None if it cannot be found there."""
    cls, key = slots.constant_or(args[0], None), slots.constant_or(args[1], MISSING)
    if not isinstance(cls, enum.EnumMeta) or type(key) not in (*SIMPLE, bool, type(None)):
        return None
    held = lookup(cls, table)
    if type(held) is not dict or key not in held or cls in tx.class_writes:
        return None
    place = AttrSource(ConstSource.of(cls, cls.__name__), table)
    return tx.wrap(held[key], DictItemSource(place, key))


def _from_table(tx: Tracer, args: Args, kwargs: Kwargs, table: str, function: Any) -> Var:
    """`function`, which looks up a member: read from `table` if the key is known, else traced inline."""
    found = _in_table(tx, args, table) if len(args) == 2 and not kwargs else None
    return tx.inline(function, args, kwargs) if found is None else found


_GETITEM, _NEW = enum.EnumMeta.__getitem__, enum.Enum.__new__
_GETATTR = vars(enum.EnumMeta).get("__getattr__")  # CPython 3.11
register(_GETITEM)(lambda tx, args, kwargs: _from_table(tx, args, kwargs, "_member_map_", _GETITEM))
register(_NEW)(lambda tx, args, kwargs: _from_table(tx, args, kwargs, "_value2member_map_", _NEW))
if _GETATTR is not None:
    register(_GETATTR)(lambda tx, args, kwargs: _from_table(tx, args, kwargs, "_member_map_", _GETATTR))
