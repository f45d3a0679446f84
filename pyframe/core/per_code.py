"""Results kept for each code object, for as long as it lives."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def per_code(compute: Callable[[types.CodeType], T]) -> Callable[[types.CodeType], T]:
    """Compute once for each code object (by identity).  The result must not lead back to the code object."""
    known: dict[int, T] = {}

    @functools.wraps(compute)
    def of(code: types.CodeType) -> T:
        found = known.get(id(code))
        if found is None:
            found = known[id(code)] = compute(code)
            weakref.finalize(code, known.pop, id(code), None).atexit = False
        return found

    return of
