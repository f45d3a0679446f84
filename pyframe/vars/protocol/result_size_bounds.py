"""Upper bounds of the size of a constant-folded result, computed before the operation runs.

An operation such as `"x" * 10**9` or `2 ** 10**6` can produce a value much larger than its operands.  The rules here
give its size in characters, bytes or items, so that the tracer can break the graph instead of computing it.  A rule
may ignore parts that are sure to be small, and returns 0 for results that cannot outgrow their operands.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_WIDTH = re.compile(r"\d{4,}")  # widths below 1000 are too small to matter
_PERCENT, _BRACES = re.compile(r"%[^a-zA-Z%]*"), re.compile(r"[:{][^{}]*")
_TEXT = (str, bytes)


def bytes_of(number: int) -> int:
    return number.bit_length() >> 3


def _added(a: Any, b: Any) -> int:
    return len(a) + len(b) if isinstance(a, _TEXT) and isinstance(b, _TEXT) else 0


def _multiplied(a: Any, b: Any) -> int:
    if isinstance(a, int):
        a, b = b, a
    if not isinstance(b, int):
        return 0
    if isinstance(a, int):
        return bytes_of(a) + bytes_of(b)
    return len(a) * b if isinstance(a, _TEXT) else 0


def _raised(a: Any, b: Any) -> int:
    if not isinstance(a, int) or not isinstance(b, int) or a in (-1, 0, 1) or b < 0:
        return 0
    return a.bit_length() * b >> 3


def _shifted(a: Any, b: Any) -> int:
    return a.bit_length() + b >> 3 if isinstance(a, int) and isinstance(b, int) and a else 0


def widths(spec: Any) -> int:
    """The sum of the widths in a format spec or a `struct` format."""
    text = spec.decode("latin-1") if isinstance(spec, bytes) else spec
    return sum(map(int, _WIDTH.findall(text))) if isinstance(text, str) else 0


def _percent(template: Any, values: Any) -> int:
    if not isinstance(template, _TEXT):
        return 0
    specs = _PERCENT.findall(template.decode("latin-1") if isinstance(template, bytes) else template)
    taken = sum(value for value in _flat(values) if isinstance(value, int)) if any("*" in each for each in specs) else 0
    return sum(map(widths, specs)) + taken


def formatted(template: str, values: Any) -> int:
    """Bound of the padding in `template.format(*values)`."""
    specs = _BRACES.findall(template)
    nested = any(each.startswith(":") for each in specs) and template.count("{") > 1
    taken = sum(value for value in _flat(values) if isinstance(value, int)) if nested and ":{" in template else 0
    return sum(map(widths, specs)) + taken


def _flat(values: Any) -> Sequence[Any]:
    if isinstance(values, Mapping):
        return list(values.values())
    return values if isinstance(values, list | tuple) else [values]


BINARY: dict[str, Callable[[Any, Any], int]] = {
    "+": _added, "*": _multiplied, "**": _raised, "<<": _shifted, "%": _percent,
}  # fmt: skip


def _replaced(text: Any, old: Any, new: Any, *count: Any) -> int:
    return len(text) + text.count(old) * len(new)


def _wide(text: Any, width: Any, *fill: Any) -> int:
    return int(width)


def _expanded(text: Any, width: Any = 8) -> int:
    return len(text) + text.count("\t" if isinstance(text, str) else b"\t") * int(width)


def _translated(text: Any, table: Any, *rest: Any) -> int:
    return len(text) * max((len(each) for each in _flat(table) if isinstance(each, str)), default=1)


_METHODS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill", "to_bytes"), _wide),
    "expandtabs": _expanded, "replace": _replaced, "translate": _translated, "__format__": lambda a, b: widths(b),
    "__add__": _added, "__mul__": _multiplied, "__rmul__": _multiplied, "__mod__": _percent,
    "__pow__": lambda a, b, *rest: 0 if rest else _raised(a, b), "__rpow__": lambda a, b, *rest: _raised(b, a),
    "__lshift__": _shifted, "__rlshift__": lambda a, b: _shifted(b, a),
}  # fmt: skip
_FUNCTIONS: dict[Any, Callable[..., int]] = {
    math.factorial: lambda n: n * n.bit_length() >> 3,
    math.comb: lambda n, k: min(n, k * n.bit_length()) >> 3,
    math.perm: lambda n, k=None: (n if k is None else k) * n.bit_length() >> 3,
    bytes: lambda n=0, *rest: n if isinstance(n, int) else 0,
    format: lambda value, spec="": widths(spec),
    struct.pack: lambda spec, *values: widths(spec),
}


def _bound(rule: Callable[..., int], args: Sequence[Any]) -> int:
    """The bound that a rule computes; 0 for arguments with which the call itself will raise."""
    try:
        return rule(*args)
    except (TypeError, AttributeError, ValueError):
        return 0


def of_method(value: Any, name: str, args: Sequence[Any]) -> int:
    return _bound(_METHODS[name], (value, *args)) if name in _METHODS else 0


def of_function(function: Any, args: Sequence[Any]) -> int:
    rule = _FUNCTIONS.get(function)
    return 0 if rule is None else _bound(rule, args)


def size_of(value: Any) -> int:
    """The size of a constant: bytes of an int, length of a string or container, 0 for other types."""
    if type(value) is int:
        return bytes_of(value)
    return len(value) if type(value) in _SIZED else 0


_SIZED = frozenset((str, bytes, list, tuple, dict, set, frozenset))
