"""Keeps the code objects of nested functions alive on versions of CPython that release them twice."""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from collections.abc import Iterator

_REFERENCES = 1 << 20  # more than the faults of a process can release


def keep_code_objects() -> None:
    """Adds references to the code of each function that a function defines, for all functions that exist.

    If CPython 3.12 or 3.13.0 has no memory for the function that MAKE_FUNCTION creates, the instruction releases the
    code object and leaves it on the stack, where the handling of the exception releases it once more. The constants of
    the outer function then refer to freed memory, and its next call crashes. Does nothing on other versions.
    """
    if sys.version_info[:2] not in ((3, 12), (3, 13)):
        return
    gc.unfreeze()  # `gc.get_objects` does not return frozen objects
    functions = [each for each in gc.get_objects() if type(each) is types.FunctionType]
    for code in {id(code): code for function in functions for code in _nested(function.__code__)}.values():
        ctypes.c_ssize_t.from_address(id(code)).value += _REFERENCES


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _nested(constant)
