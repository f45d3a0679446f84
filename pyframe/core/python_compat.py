"""Differences between CPython versions 3.11 to 3.14, other than bytecode (for which see `bytecode/pyNNN`).

Each constant here is found by testing the running interpreter (does an attribute exist, what does an error message
say) and not by comparing version numbers, so it is right for any version between two known ones.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

# From 3.14 on, annotations are evaluated when they are read, by the function `__annotate__` (PEP 649).
LAZY_ANNOTATIONS = "__annotate__" in vars(types.FunctionType)
ANNOTATIONLIB: Any = importlib.import_module("annotationlib") if LAZY_ANNOTATIONS else None


def _message(fn: Callable[[], Any]) -> str:
    """The message of the exception that `fn` raises."""
    try:
        fn()
    except Exception as error:
        return str(error)
    raise AssertionError("this CPython raises nothing here")


def full_name(cls: type) -> str:
    """The name of a class with its module, as CPython's `%T` format prints it."""
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # Py_TPFLAGS_*


def class_name(cls: type) -> str:
    """`tp_name` of a class, which most messages print: with the module unless Python code created the class."""
    created = cls.__flags__ & _HEAP_TYPE and not cls.__flags__ & _IMMUTABLE_TYPE
    return cls.__name__ if created or cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


class _Probe:
    @classmethod  # type: ignore[misc]
    @property
    def chained(cls) -> int:
        return 1


# Whether a classmethod of a property is a property of the class (up to 3.12).
CLASSMETHODS_CHAIN: bool = _Probe.chained == 1


# Whether each call of `locals()` in a function returns a dict of its own (from 3.13 on).
LOCALS_ARE_COPIES: bool = (lambda: locals() is not locals())()


def _unpack(values: Any) -> None:
    first, second = values


# "max() arg is an empty sequence", or from 3.12 on "max() iterable argument is empty".
EMPTY_EXTREME = _message(lambda: max(())).removeprefix("max() ")
# Whether "too many values to unpack" also says how many values a list, tuple or dict has (from 3.14 on).
TOO_MANY_VALUES_COUNTED = "got" in _message(lambda: _unpack((1, 2, 3)))


def _not_a_pair() -> tuple[str, str]:
    """Templates of the message and of the note (from 3.14 on; else "") of the TypeError for `dict([1])`, whose item is
    not a pair."""
    try:
        dict([1])  # type: ignore[arg-type]
    except TypeError as error:
        notes = "".join(getattr(error, "__notes__", ()))
        what = "dictionary update sequence element #0"
        return str(error).replace(what, "{what}"), notes.replace(what, "{what}")
    raise AssertionError("a dict is made of a number")


NOT_A_PAIR = _not_a_pair()


def _unhashable(fn: Callable[[], Any]) -> str:
    """Template of the message when `fn` hashes a list; from 3.14 on it names the use (key, element) and `full_name`."""
    return _message(fn).replace("unhashable type: 'list'", "{error}").replace("'list'", "'{kind}'")


UNHASHABLE = "{error}"
UNHASHABLE_KEY, UNHASHABLE_ELEMENT = _unhashable(lambda: {[]: 1}), _unhashable(lambda: {[]})
