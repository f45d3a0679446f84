"""Where a trace is in the program, by the frames that are being traced, from the root to the innermost."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from torch import nn

from ..core.files import our_file, short_name, skipped_file
from ..core.guard import UserLine
from .frame import Frame


def user_line(frames: Sequence[Frame]) -> UserLine | None:
    """The current line of the innermost frame of the program itself; without one, of the innermost frame that is not
    pyframe's own."""
    for left_out in (skipped_file, our_file):
        for frame in reversed(frames):
            if not left_out(frame.file):
                return frame.user_line()
    return None


def first_line(func: types.FunctionType, locals_: Sequence[Any]) -> UserLine:
    """The first line of the compiled function; for a module, of its `forward`, because the root frame is pyframe's
    own."""
    module = locals_[0] if locals_ else None
    forward = getattr(type(module), "forward", None) if isinstance(module, nn.Module) else None
    code = getattr(forward, "__code__", func.__code__)
    return UserLine(code.co_filename, code.co_firstlineno, code.co_name)


def in_library(frames: Sequence[Frame]) -> str:
    """The current position in a library, if the trace is in one below the user's line; otherwise ""."""
    inner = frames[-1]
    if our_file(inner.file) or not skipped_file(inner.file) or all(skipped_file(f.file) for f in frames):
        return ""
    line = inner.user_line()
    return f" ({short_name(line.filename)}:{line.lineno} in {line.function})"


def library_forwards(frames: Sequence[Frame]) -> set[types.CodeType]:
    """The code that is captured on its own after a break here, although code of torch normally is not, if the trace is
    in code of a container module of torch: the forward of its children if it is within the container's own forward (as
    in DDP, whose forward only calls the wrapped module), else that forward, because the trace is in its hooks."""
    for frame in reversed(frames[1:]):
        module = frame.first_argument()
        if not isinstance(module, nn.Module):
            continue
        own = _forward_code(module)
        if own is None or not skipped_file(own.co_filename):
            return set()
        inside = any(each.code is own for each in frames)
        codes = map(_forward_code, module.children()) if inside else [own]
        return {code for code in codes if code is not None}
    return set()


def _forward_code(module: nn.Module) -> types.CodeType | None:
    """The code of the forward of a module that contains others; None for other modules, and for those that the trace
    creates, whose value is an instance without attributes."""
    forward = getattr(type(module), "forward", None)
    contains_others = bool(vars(module).get("_modules"))
    return forward.__code__ if isinstance(forward, types.FunctionType) and contains_others else None
