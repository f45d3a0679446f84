"""Replaces symbolic sizes by numbers throughout a structure of tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from .real import Real
from .size import Size


def substitute_sizes(x: Any, values: Mapping[str, int]) -> Any:
    """`x` with each Size and Real replaced by its value, in nested containers and dataclasses; `x` if it has none."""
    return replaced(x, (Size, Real), lambda number: number.at(values))


def replaced(x: Any, kind: type | tuple[type, ...], number: Callable[[Any], Any]) -> Any:
    """`x` with each nested `y` of type `kind` replaced by `number(y)`."""
    if isinstance(x, kind):
        return number(x)
    if isinstance(x, tuple | list):
        items = [replaced(y, kind, number) for y in x]
        if all(a is b for a, b in zip(items, x)):
            return x
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {key: replaced(y, kind, number) for key, y in x.items()}
    cls: type = type(x)
    names = _fields(cls)
    if not names:
        return x
    before = [getattr(x, name) for name in names]
    after = [replaced(y, kind, number) for y in before]
    if all(a is b for a, b in zip(after, before)):
        return x
    return dataclasses.replace(x, **dict(zip(names, after)))


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()
