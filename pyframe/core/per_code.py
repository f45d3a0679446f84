"""A cache of results per code object; an entry is dropped when its code object is deallocated."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def per_code(compute: Callable[[types.CodeType], T]) -> Callable[[types.CodeType], T]:
    """Decorator that caches `compute` by the identity of the code object.  The result must not hold a reference to the
    code object, which would then never be deallocated."""
    known: dict[int, T] = {}

    @functools.wraps(compute)
    def of(code: types.CodeType) -> T:
        found = known.get(id(code))
        if found is None:
            found = known[id(code)] = compute(code)
            weakref.finalize(code, known.pop, id(code), None).atexit = False
        return found

    return of
