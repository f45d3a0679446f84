"""Vars for type expressions that are not classes: `list[int]`, `int | None`, `typing.Optional[int]`, type variables.

They are immutable constants, guarded by equality.
"""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import Source
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import lookup
from ..protocol.const import BINARY, ConstVar, fold, make, maker
from ..tracer import Tracer
from .functions import BoundMethodVar
from .lookup import class_function

_BASES = (
    types.GenericAlias, types.UnionType, typing.TypeVar, typing.ParamSpec, typing.ForwardRef,
    typing._SpecialForm, typing._BaseGenericAlias,  # type: ignore[attr-defined]
)  # fmt: skip


def _with_subclasses(kind: type) -> list[type]:
    below: list[type] = type.__subclasses__(kind)
    return [kind, *(each for derived in below for each in _with_subclasses(derived))]


# Types of immutable values that compare by content.
TYPE_FORMS = tuple(dict.fromkeys(kind for base in _BASES for kind in _with_subclasses(base)))


class TypeFormVar(ConstVar):
    """A type expression that is not a class, such as `list[int]`."""

    __slots__ = ()

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if isinstance(found := getattr(self.value, name, None), TYPE_FORMS):
            return make(found)
        origin = getattr(self.value, "__origin__", None)
        own = name.startswith("__") or hasattr(type(self.value), name) or name in getattr(self.value, "__dict__", ())
        return make(origin).getattr_(tx, name) if isinstance(origin, type) and not own else super().getattr_(tx, name)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        try:
            item = key.plain()  # the result copies a list of parameters
        except NotConstant:
            return self.unsupported(tx, "indexing by an unknown value")
        return fold(tx, operator.getitem, self.value, item)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op != "|" or not other.is_constant():
            return None
        pair = (other.constant(), self.value) if reflected else (self.value, other.constant())
        return fold(tx, BINARY["|"], *pair)

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """`list[int](items)`: calls the class and sets `__orig_class__` of the result to the alias, where possible."""
        raw = lookup(type(self.value), "__call__")
        if isinstance(raw, types.FunctionType):
            return tx.call(BoundMethodVar(class_function(tx, type(self.value), "__call__", raw), self), args, kwargs)
        if not isinstance(self.value, types.GenericAlias):
            return super().call(tx, args, kwargs)
        return tx.inline(_call_alias, [self, *args], kwargs)


def _call_alias(alias: Any, /, *args: Any, **kwargs: Any) -> Any:
    instance = alias.__origin__(*args, **kwargs)
    try:
        instance.__orig_class__ = alias
    except (AttributeError, TypeError):
        pass
    return instance


def wrap_type_form(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "EQUALS", value)
    return TypeFormVar(value, source)


maker(*TYPE_FORMS)(TypeFormVar)
