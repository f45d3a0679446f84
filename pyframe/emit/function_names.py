"""Names functions in warnings and errors: name, file and first line."""

from __future__ import annotations

import types

from ..core.files import our_file
from .resume import plain_name


def place(func: types.FunctionType) -> str:
    """A function's name for messages, with its file and first line; a resume function is named like the function it
    continues."""
    code = func.__code__
    name = plain_name(func.__qualname__)
    return name if our_file(code.co_filename) else f"{name} ({code.co_filename}:{code.co_firstlineno})"
