"""Objects and functions of the standard library whose results depend only on their arguments.

These are patterns of `re`, times of `datetime`, `json` of plain values, `struct`, checksums, and `decimal` numbers
(with a guard on the decimal context).  Calls with known arguments are constant-folded.
"""

from __future__ import annotations

import _string
import binascii
import dataclasses
import datetime
import decimal
import functools
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.source import ConstSource, Source
from ..codegen import Codegen
from ..containers.iterator import ItemsIteratorVar
from ..objects.functions import FunctionVar
from ..polyfills import builtins as polyfills
from ..protocol.base import NotConstant, NotRebuildable, Var
from ..protocol.const import BINARY, COMPARE, FOLDED, ConstVar, MethodVar, fold, make, maker
from ..registry import Handler, register
from ..tracer import Tracer

PATTERNS = (re.Pattern, re.Match)
_TIMES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
_OF_THE_SYSTEM = ("astimezone", "timestamp", "strftime", "ctime")  # depend on time zone or locale
# Types of values that may be arguments.
_KNOWN = (*FOLDED, bool, *PATTERNS, *_TIMES, decimal.Decimal)


def _context() -> str:
    """The settings of `decimal` that results depend on, as text; without the flags, which operations set."""
    now = decimal.getcontext().copy()
    now.clear_flags()
    return repr(now)


@dataclasses.dataclass(frozen=True)
class _SameContext:
    expected: str

    def __call__(self, _: Any) -> bool:
        return _context() == self.expected


def _guard_context(tx: Tracer) -> None:
    same = _SameContext(_context())
    tx.guard(ConstSource.of(decimal, "decimal"), "PREDICATE", (same, (), "the decimal context is the same"))


def _value(arg: Var) -> Any:
    """The value of an argument; NotConstant unless it consists of plain values."""
    value = arg.plain()
    if not _is_plain(value):
        raise NotConstant(arg.describe())
    return value


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if type(value) in (list, tuple) else type(value) in _KNOWN


def _characters(arg: Var) -> Var:
    """What `re` reads of a text: the characters of an instance of a subclass of str."""
    base = getattr(arg, "base", None)
    return base if base is not None and issubclass(arg.python_type(), str) else arg


def _call(tx: Tracer, what: str, fn: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    try:
        values, named = [_value(arg) for arg in args], {key: _value(arg) for key, arg in kwargs.items()}
    except NotConstant:
        return tx.graph_break("unknown-c-function", f"{what} of values known only at run time")
    return fold(tx, fn, *values, **named)


class PureVar(ConstVar):
    """An immutable object whose methods are pure."""

    __slots__ = ()

    def getattr_(self, tx: Tracer, name: str) -> Var:
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_(AttributeError, *error.args)
        return MethodVar(self, name) if callable(found) else make(found)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        what = f"{type(self.value).__name__}.{name}"
        if name in _OF_THE_SYSTEM:
            return tx.graph_break("unknown-c-function", what)
        if name == "sub" and any(isinstance(arg, FunctionVar) for arg in (*args, *kwargs.values())):
            return tx.inline(polyfills.pattern_sub, [self, *args], kwargs)
        fn = getattr(self.value, name)
        if not isinstance(self.value, re.Pattern):
            return _call(tx, what, fn, args, kwargs)
        if name != "finditer":
            return _of_texts(tx, what, fn, args, kwargs)
        found = _call(tx, what, fn, [*map(_characters, args)], kwargs)
        return ItemsIteratorVar([_match(item, args) for item in found.constant()])

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op not in BINARY or not isinstance(other, ConstVar) or not _is_plain(other.value):
            return None
        return fold(tx, BINARY[op], *((other.value, self.value) if reflected else (self.value, other.value)))

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        known = isinstance(other, ConstVar) and _is_plain(other.value)
        return fold(tx, COMPARE[op], self.value, other.constant()) if known else None


class MatchOfVar(PureVar):
    """A match in `text`, an instance of a subclass of str; `value` is the same match in its characters."""

    __slots__ = ("text",)

    def __init__(self, value: Any, text: Var) -> None:
        super().__init__(value)
        self.text = text

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return self.text if name == "string" else super().getattr_(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        raise NotRebuildable("a match in an instance of a subclass of str")


def _match(found: Any, args: Sequence[Var]) -> Var:
    """The Var of what `re` found in texts."""
    texts = [arg for arg in args if _characters(arg) is not arg]
    return MatchOfVar(found, texts[0]) if texts and isinstance(found, re.Match) else make(found)


def _of_texts(tx: Tracer, what: str, fn: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """A function or method of `re` that reads texts."""
    named = {name: _characters(arg) for name, arg in kwargs.items()}
    found = _call(tx, what, fn, [*map(_characters, args)], named)
    return _match(found.value, [*args, *kwargs.values()]) if isinstance(found, PureVar) else found


maker(*PATTERNS, *_TIMES, decimal.Decimal)(PureVar)


def wrap_pattern(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "ID", value)
    return PureVar(value, source)


def wrap_decimal(tx: Tracer, value: Any, source: Source | None) -> Var:
    _guard_context(tx)
    same = functools.partial(_same_decimal, value.as_tuple())
    tx.guard(source, "PREDICATE", (same, (), f"== {value!r}"))
    return PureVar(value, source)


def _same_decimal(parts: Any, value: Any) -> bool:
    return type(value) is decimal.Decimal and value.as_tuple() == parts


@register(decimal.Decimal)
def _decimal(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    _guard_context(tx)
    return _call(tx, "Decimal", decimal.Decimal, args, kwargs)


def _of(fn: Callable[..., Any]) -> Handler:
    return lambda tx, args, kwargs: _call(tx, f"{fn.__module__}.{fn.__qualname__}", fn, args, kwargs)


def _of_re(fn: Callable[..., Any]) -> Handler:
    """A handler for a function of `re`; a pattern that is an instance of a subclass of str is not plain."""

    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        what = f"re.{fn.__qualname__}"
        if any(_characters(arg) is not arg for arg in (*args[:1], *(kwargs[n] for n in ("pattern",) if n in kwargs))):
            return _call(tx, what, fn, args, kwargs)
        return _of_texts(tx, what, fn, args, kwargs)

    return run


@register(re.sub)
def _sub(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`re.sub`, whose replacement may be a function of the program."""
    if not any(isinstance(arg, FunctionVar) for arg in (*args, *kwargs.values())):
        return _call(tx, "re.sub", re.sub, args, kwargs)
    return tx.inline(polyfills.re_sub, args, kwargs)


def _listed(fn: Callable[..., Any]) -> Handler:
    """A handler for a pure function that returns an iterator."""

    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        found = _call(tx, fn.__name__, lambda *values, **named: list(fn(*values, **named)), args, kwargs)
        return found.iterate(tx)

    return run


def _field_name(name: str) -> tuple[Any, list[Any]]:
    first, rest = _string.formatter_field_name_split(name)
    return first, list(rest)


_TEXT_FUNCTIONS = (re.match, re.search, re.fullmatch, re.split, re.findall)
_BYTES = (
    struct.pack, struct.unpack, struct.calcsize, zlib.crc32, zlib.adler32, binascii.hexlify, binascii.unhexlify,
    binascii.a2b_base64, binascii.b2a_base64,
)  # fmt: skip
for _read in _TEXT_FUNCTIONS:
    register(_read)(_of_re(_read))
for _fn in (re.subn, re.compile, re.escape, json.dumps, json.loads, *_TIMES, *_BYTES):
    register(_fn)(_of(_fn))
register(re.finditer)(_listed(re.finditer))
register(_string.formatter_parser)(_listed(_string.formatter_parser))
register(_string.formatter_field_name_split)(_of(_field_name))
