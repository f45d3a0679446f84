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


def _unpack(values: Any) -> None:
    first, second = values


# "max() arg is an empty sequence", or from 3.12 on "max() iterable argument is empty".
EMPTY_EXTREME = _message(lambda: max(())).removeprefix("max() ")
# Whether the error of an assignment to too few targets says how many values a list, tuple or dict has: from 3.14 on.
TOO_MANY_VALUES_COUNTED = "got" in _message(lambda: _unpack((1, 2, 3)))
