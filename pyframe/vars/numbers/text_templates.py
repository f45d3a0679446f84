"""`str.format`, `%` and `join` with numbers that vary between calls: the text is made at run time, as that of an
f-string is."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence

from ..protocol import text
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..protocol.number_text import NumberTextVar, joined_text
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .symint import is_number

_PLAIN = (str, int, float, bool, type(None))
# A field of `%`: flags, width, precision and type; or "%%".
_FIELD = re.compile(r"%(?:(%)|([-+ #0]*)(\d*)(?:\.(\d+))?([diufFeEgGxXosr]))")
_OF_INTS = {"d": "d", "i": "d", "u": "d", "x": "x", "X": "X", "o": "o"}


def _varies(var: Var) -> bool:
    return isinstance(var, NumberTextVar) or is_number(var) and not var.is_constant()


def _is_plain(var: Var) -> bool:
    return _varies(var) or var.is_constant() and var.python_type() in _PLAIN


def _formats_numbers(template: Var, values: Sequence[Var]) -> bool:
    """Whether a number that varies is among the values, which all have simple types."""
    return template.python_type() is str and any(map(_varies, values)) and all(map(_is_plain, values))


@register(str, method="format", replace=True)
def _format(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    template, *values = args
    made = None
    if _formats_numbers(template, [*values, *kwargs.values()]):
        fields = _fields_of_format(template.constant(), values, kwargs)
        made = None if fields is None else joined_text(tx, [_text_of(tx, *field) for field in fields])
    return text.format_method(tx, args, kwargs) if made is None else made


def _fields_of_format(
    template: str, values: Sequence[Var], named: Mapping[str, Var]
) -> list[tuple[Var, str | None, str]] | None:
    """What a template of `str.format` joins: each value with its conversion and format; None for templates that are
    wrong or read attributes, items or nested formats."""
    found: list[tuple[Var, str | None, str]] = []
    places: set[bool] = set()  # whether fields are numbered by their order
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        return None
    counted = 0
    for literal, name, spec, conversion in parsed:
        if literal:
            found.append((ConstVar(literal), None, ""))
        if name is None:
            continue
        place = str(counted) if name == "" else name
        counted += name == ""
        if place.isdigit():
            places.add(name == "")
            value = values[int(place)] if int(place) < len(values) else None
        else:
            value = named.get(place)
        if value is None or len(places) > 1 or "{" in (spec or "") or conversion not in (None, "s", "r"):
            return None
        found.append((value, conversion, spec or ""))
    return found


def _text_of(tx: Tracer, value: Var, conversion: str | None, spec: str) -> Var:
    if conversion is not None:
        value = text.str_of(tx, value) if conversion == "s" else text.repr_of(tx, value)
    return text.format_of(tx, value, ConstVar(spec))


@register(str, method="__mod__", replace=True)
def _percent(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    template, argument = args
    values = argument.unpack(tx) if argument.python_type() is tuple else [argument]
    made = None
    if _formats_numbers(template, values):
        fields = _fields_of_percent(template.constant(), values)
        made = None if fields is None else joined_text(tx, [_text_of(tx, *field) for field in fields])
    return text.percent(tx, args, kwargs) if made is None else made


def _fields_of_percent(template: str, values: Sequence[Var]) -> list[tuple[Var, str | None, str]] | None:
    """What a template of `%` joins: each value with its conversion and the format that gives the same text; None for
    templates that are wrong or use more than numbers and plain texts."""
    found: list[tuple[Var, str | None, str]] = []
    left: Iterator[Var] = iter(values)
    at = 0
    for field in _FIELD.finditer(template):
        found.append((ConstVar(template[at : field.start()]), None, ""))
        at = field.end()
        if field[1]:
            found.append((ConstVar("%"), None, ""))
            continue
        value = next(left, None)
        spec = None if value is None else _spec(value, *field.groups("")[1:])
        if value is None or spec is None:
            return None
        found.append((value, field[5] if field[5] in "sr" else None, spec))
    found.append((ConstVar(template[at:]), None, ""))
    literals = [part.value for part, *_ in found if type(part) is ConstVar and not any(part is v for v in values)]
    wrong = next(left, None) is not None or any("%" in literal and literal != "%" for literal in literals)
    return None if wrong else found


def _spec(value: Var, flags: str, width: str, precision: str, kind: str) -> str | None:
    """The format that gives the text of `%` with these flags; None if there is none."""
    if kind in "sr":
        return None if flags or width or precision else ""
    if not is_number(value) or value.python_type() is bool:
        return None
    if kind in _OF_INTS:
        if precision or value.python_type() is not int:
            return None
        kind = _OF_INTS[kind]
    sign = "+" if "+" in flags else " " if " " in flags else ""
    align, zeros = ("<", "") if "-" in flags else ("", "0" if "0" in flags else "")
    return align + sign + ("#" if "#" in flags else "") + zeros + width + (precision and f".{precision}") + kind


@register(str, method="join", replace=True)
def _join(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    separator, parts_of = args
    parts = parts_of.unpack(tx)
    made = None
    if _formats_numbers(separator, parts) and all(part.python_type() is str for part in parts):
        between = [each for part in parts for each in (separator, part)]
        made = joined_text(tx, between[1:])
    return text.join(tx, separator, parts) if made is None else made
