"""Functions that guards call. A kept capture names them, so they are where nothing of the compiler is imported."""

from __future__ import annotations

import collections
from typing import Any


def same_set(expected: frozenset[Any], value: Any) -> bool:
    return frozenset(value) == expected


def equal(expected: Any, value: Any) -> bool:
    return type(value) is type(expected) and value == expected


def same_keys(expected: tuple[Any, ...], value: Any) -> bool:
    return tuple(value) == expected


def dict_contents(value: dict[Any, Any]) -> dict[Any, Any]:
    if isinstance(value, collections.OrderedDict):
        keys = collections.OrderedDict.__iter__(value)
        return {key: collections.OrderedDict.__getitem__(value, key) for key in keys}
    return {key: dict.__getitem__(value, key) for key in dict.keys(value)}
