"""Values as text: `repr`, `str`, `format` and what formats with them, by CPython's rules over Vars."""

from __future__ import annotations

from typing import Any

from ..core.tracer import Tracer
from . import growth
from .base import NotConstant, Var
from .const import STRING_METHODS, ConstVar, fold


def repr_of(tx: Tracer, var: Var) -> Var:
    """`repr(var)`."""
    found = var.repr_(tx)
    return fold(tx, repr, _constant(tx, var, "repr()")) if found is None else _checked(tx, "__repr__", found)


def str_of(tx: Tracer, var: Var) -> Var:
    """`str(var)`."""
    found = var.str_(tx)
    if found is None:
        return fold(tx, str, var.constant()) if var.is_constant() else repr_of(tx, var)
    return _checked(tx, "__str__", found)


def format_of(tx: Tracer, var: Var, spec: Var) -> Var:
    """`format(var, spec)`."""
    found = var.format_(tx, spec)
    if found is not None:
        return found
    if var.is_constant():
        words = _constant(tx, spec, "a format spec")
        tx.limit_size(growth.widths(words), "a text")
        return fold(tx, format, var.constant(), words)
    if _constant(tx, spec, "a format spec") == "":
        return str_of(tx, var)
    if var.python_type().__format__ is object.__format__:
        tx.raise_(TypeError, f"unsupported format string passed to {var.python_type().__name__}.__format__")
    return var.unsupported(tx, "format()")


def hash_of(tx: Tracer, var: Var) -> Var:
    """`hash(var)`."""
    found = var.hash_(tx)
    return fold(tx, hash, _constant(tx, var, "hash()")) if found is None else found


def _constant(tx: Tracer, var: Var, what: str) -> Any:
    try:
        return var.constant()
    except NotConstant:
        return var.unsupported(tx, what)


def _checked(tx: Tracer, method: str, result: Var) -> Var:
    kind = result.python_type()
    if not issubclass(kind, str):
        tx.raise_(TypeError, f"{method} returned non-string (type {kind.__name__})")
    return result


class Late:
    """Stands for a Var in a call of C code that formats it."""

    __slots__ = ("tx", "var")

    def __init__(self, tx: Tracer, var: Var) -> None:
        self.tx, self.var = tx, var

    def __repr__(self) -> str:
        return self._text(repr_of(self.tx, self.var))

    def __str__(self) -> str:
        return self._text(str_of(self.tx, self.var))

    def __format__(self, spec: str) -> str:
        return self._text(format_of(self.tx, self.var, ConstVar(spec)))

    def _text(self, result: Var) -> str:
        try:
            return str(result.constant())
        except NotConstant:
            return str(self.var.unsupported(self.tx, "text"))


def late(tx: Tracer, var: Var) -> Any:
    """The value of `var` for C code that formats it: known, or standing for it."""
    try:
        return var.plain()
    except NotConstant:
        return Late(tx, var)


def _str_format(tx: Tracer, template: Var, args: list[Var], kwargs: dict[str, Var]) -> Var:
    values, named = [late(tx, arg) for arg in args], {key: late(tx, arg) for key, arg in kwargs.items()}
    tx.limit_size(growth.formatted(template.constant(), [*values, *named.values()]), "a text")
    return fold(tx, str.format, template.constant(), *values, **named)


def _str_format_map(tx: Tracer, template: Var, args: list[Var], kwargs: dict[str, Var]) -> Var:
    values = [late(tx, arg) for arg in args]
    tx.limit_size(growth.formatted(template.constant(), *values[:1]), "a text")
    return fold(tx, str.format_map, template.constant(), *values)


def _percent(tx: Tracer, template: Var, args: list[Var], kwargs: dict[str, Var]) -> Var:
    (arg,) = args
    values = tuple(late(tx, item) for item in arg.unpack(tx)) if arg.python_type() is tuple else late(tx, arg)
    tx.limit_size(growth.BINARY["%"](template.constant(), values), "a text")
    return fold(tx, _modulo, template.constant(), values)


def _modulo(template: Any, values: Any) -> Any:
    return template % values


def _join(tx: Tracer, separator: Var, args: list[Var], kwargs: dict[str, Var]) -> Var:
    items = args[0].unpack(tx)
    try:
        parts = [item.constant() for item in items]
        text = separator.constant()
        tx.limit_size(sum(map(growth.size_of, parts)) + len(text) * len(parts), "a text")
        return fold(tx, text.join, parts)
    except NotConstant:
        return tx.graph_break("tensor-to-python", "str.join of a value known only at run time")


for _kind in (str, bytes):
    STRING_METHODS[_kind, "join"] = _join
    STRING_METHODS[_kind, "__mod__"] = _percent
STRING_METHODS[str, "format"] = _str_format
STRING_METHODS[str, "format_map"] = _str_format_map
