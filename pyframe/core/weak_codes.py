"""Sets of code objects that are compared by identity (equal code objects are not the same) and not kept alive."""

from __future__ import annotations

import functools
import types
import weakref

WeakCodes = dict[int, weakref.ref[types.CodeType]]
"""The code objects by their id."""


def add(codes: WeakCodes, code: types.CodeType) -> None:
    """Add a code object, which is removed when it is freed."""
    codes[id(code)] = weakref.ref(code, functools.partial(_remove, codes, id(code)))


def _remove(codes: WeakCodes, key: int, _: weakref.ref[types.CodeType]) -> None:
    codes.pop(key, None)
