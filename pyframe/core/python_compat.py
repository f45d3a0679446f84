"""What CPython's versions do differently, bytecode aside: the one module that asks (`bytecode/pyNNN` know bytecode).

Supported are CPython 3.11 to 3.14.  Each question is about the thing itself (is there such an attribute, what does an
error say), so that a version between two known ones is answered right.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

# Annotations are evaluated when they are read, by the function `__annotate__` (PEP 649): from 3.14 on.
LAZY_ANNOTATIONS = "__annotate__" in vars(types.FunctionType)
ANNOTATIONLIB: Any = importlib.import_module("annotationlib") if LAZY_ANNOTATIONS else None


def _message(fn: Callable[[], Any]) -> str:
    """What the exception says that `fn` raises."""
    try:
        fn()
    except Exception as error:
        return str(error)
    raise AssertionError("this CPython raises nothing here")


def full_name(cls: type) -> str:
    """The name of a class as messages give it that name its module (`%T` of C)."""
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


def _unpack(values: Any) -> None:
    first, second = values


# "max() arg is an empty sequence", or from 3.12 on "max() iterable argument is empty".
EMPTY_EXTREME = _message(lambda: max(())).removeprefix("max() ")
# Whether the error of an assignment to too few targets says how many values a list, tuple or dict has: from 3.14 on.
TOO_MANY_VALUES_COUNTED = "got" in _message(lambda: _unpack((1, 2, 3)))


def _not_a_pair() -> tuple[str, str]:
    """What is said of an item that is no pair where a dict is filled, and in a note (from 3.14 on)."""
    try:
        dict([1])  # type: ignore[arg-type]
    except TypeError as error:
        notes = "".join(getattr(error, "__notes__", ()))
        what = "dictionary update sequence element #0"
        return str(error).replace(what, "{what}"), notes.replace(what, "{what}")
    raise AssertionError("a dict is made of a number")


NOT_A_PAIR = _not_a_pair()


def _unhashable(fn: Callable[[], Any]) -> str:
    """A template of what is said of a list where `fn` puts one; from 3.14 on it says what for, with `full_name`."""
    return _message(fn).replace("unhashable type: 'list'", "{error}").replace("'list'", "'{kind}'")


UNHASHABLE = "{error}"
UNHASHABLE_KEY, UNHASHABLE_ELEMENT = _unhashable(lambda: {[]: 1}), _unhashable(lambda: {[]})  # type: ignore[misc]
