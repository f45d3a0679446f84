"""Which frames are never captured on their own. Imports nothing of the compiler."""

from __future__ import annotations

import gc
import importlib
import types
from collections.abc import Callable, Collection
from typing import Any

from .core.files import our_file, skipped_file

_IMPORT_GLOBALS: Any = vars(importlib._bootstrap)


def file_of(func: types.FunctionType) -> str:
    """The file of a function. Code generated without a file, for example by dataclasses, has the file of its module."""
    filename = func.__code__.co_filename
    return func.__globals__.get("__file__", filename) if filename.startswith("<string") else filename


def is_skipped(func: types.FunctionType, is_resume: bool) -> bool:
    """Whether a function that the program has not compiled itself is never captured: functions in skipped files and
    their resume functions, `__torch_function__` overrides, which receive a different function in each call, and
    callbacks of the garbage collector, which may run below any function."""
    code = func.__code__
    if any(getattr(each, "__func__", each) is func for each in gc.callbacks):
        return True
    if is_resume and not our_file(code.co_filename):
        return False
    return code.co_name == "__torch_function__" or skipped_file(file_of(func))


def is_importing(
    frame: types.FrameType | None, always: Collection[types.CodeType], is_generated: Callable[[types.CodeType], bool]
) -> bool:
    """Whether code that calls `frame` runs for an import that the program triggered below a compiled function, which is
    one of `always` or of the code that was generated for it."""
    while frame is not None and not is_generated(frame.f_code) and frame.f_code not in always:
        if frame.f_globals is _IMPORT_GLOBALS:
            return True
        frame = frame.f_back
    return False
