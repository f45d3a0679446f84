"""`repr`, `str`, `format` and `hash` of Vars, and the str and bytes methods that format values.

`str.format`, `%` and `join` accept Vars whose text has to be traced (an instance with its own `__repr__`, say); such
arguments are passed to CPython's formatting code as `TextPlaceholder` placeholders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.trace_reliances import note_call
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from . import result_size_bounds
from .base import NotConstant, Var
from .const import ConstVar, fold


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
        tx.limit_size(result_size_bounds.widths(words), "a text")
        return fold(tx, format, var.constant(), words)
    if _constant(tx, spec, "a format spec") == "":
        return str_of(tx, var)
    if var.python_type().__format__ is object.__format__:
        tx.raise_(TypeError, f"unsupported format string passed to {var.python_type().__name__}.__format__")
    return var.unsupported(tx, "format()")


def hash_of(tx: Tracer, var: Var) -> Var:
    """`hash(var)`."""
    note_call(hash)
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


class TextPlaceholder:
    """Placeholder that C formatting code receives in place of a Var; its text is traced when it is requested.  It has
    no public attributes, so a template that reads an attribute of it fails."""

    __slots__ = ("__tx", "__var")

    def __init__(self, tx: Tracer, var: Var) -> None:
        self.__tx, self.__var = tx, var

    def __repr__(self) -> str:
        return self.__text(repr_of(self.__tx, self.__var))

    def __str__(self) -> str:
        return self.__text(str_of(self.__tx, self.__var))

    def __format__(self, spec: str) -> str:
        return self.__text(format_of(self.__tx, self.__var, ConstVar(spec)))

    def __text(self, result: Var) -> str:
        try:
            return str(result.constant())
        except NotConstant:
            return str(self.__var.unsupported(self.__tx, "text"))


def text_argument(tx: Tracer, var: Var) -> Any:
    """An argument for C formatting code: the value of `var` if it is known, else a `TextPlaceholder`."""
    try:
        return var.plain()
    except NotConstant:
        return TextPlaceholder(tx, var)


def _formatted(tx: Tracer, template: Var, method: Any, values: list[Any], named: dict[str, Any]) -> Var:
    """`method(template, *values, **named)`.  The graph breaks if the C code needs more of a `TextPlaceholder` than its
    text (an attribute, an item, a number)."""
    if not any(isinstance(value, TextPlaceholder) for value in (*values, *named.values())):
        return fold(tx, method, template.constant(), *values, **named)
    try:
        return ConstVar(method(template.constant(), *values, **named))
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        return template.unsupported(tx, f"formatting that raises {type(error).__name__}")


@register(str, method="format")
def format_method(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    template, *args = args
    values = [text_argument(tx, arg) for arg in args]
    named = {key: text_argument(tx, arg) for key, arg in kwargs.items()}
    tx.limit_size(result_size_bounds.formatted(template.constant(), [*values, *named.values()]), "a text")
    return _formatted(tx, template, str.format, values, named)


@register(str, method="format_map")
def _str_format_map(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    template, *args = args
    values = [text_argument(tx, arg) for arg in args]
    tx.limit_size(result_size_bounds.formatted(template.constant(), *values[:1]), "a text")
    return fold(tx, str.format_map, template.constant(), *values)


@register(str, bytes, method="__mod__")
def percent(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    template, arg = args
    single = arg.python_type() is not tuple
    values = [text_argument(tx, item) for item in ([arg] if single else arg.unpack(tx))]
    tx.limit_size(result_size_bounds.BINARY["%"](template.constant(), values[0] if single else tuple(values)), "a text")
    return _formatted(tx, template, _modulo_one if single else _modulo, values, {})


def _modulo_one(template: Any, value: Any) -> Any:
    return template % value


def _modulo(template: Any, *values: Any) -> Any:
    return template % values


@register(str, bytes, method="join")
def _join(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return join(tx, args[0], args[1].unpack(tx))


def join(tx: Tracer, separator: Var, items: Sequence[Var]) -> Var:
    """`separator.join(items)`."""
    try:
        parts = [item.constant() for item in items]
        text = separator.constant()
        tx.limit_size(sum(map(result_size_bounds.size_of, parts)) + len(text) * len(parts), "a text")
        return fold(tx, text.join, parts)
    except NotConstant:
        return tx.graph_break("tensor-to-python", "str.join of a value known only at run time")
