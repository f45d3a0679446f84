"""Resume functions with what is known of them: `resume.py` makes their code in any Python, this one tells the hook."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

from .. import _C
from ..core.guard import UserLine
from ..errors import SkipFrame
from .resume import CannotResume, Continuation, ResumeKey, continuation, shared_resume


def described_resume(key: ResumeKey, loops: bool, stack: Sequence[UserLine]) -> tuple[types.CodeType, Continuation]:
    """`shared_resume(key)` with its description. `loops`: it continues the body of a loop; `stack`: the user's lines at
    the break, outermost first. SkipFrame if no function can continue there."""
    try:
        code = shared_resume(key)
    except CannotResume as error:
        raise SkipFrame(str(error)) from error
    described = continuation(code)
    assert described is not None
    if described.handles_errors:
        _C.handles_errors(code)
    described.loops = described.loops or loops
    if described.after is None and stack:
        described.after = stack[-1]
    return code, described


def raise_at(key: ResumeKey, cells: tuple[types.CellType, ...], args: list[Any], error: BaseException) -> Any:
    """Continue the calling frame in the resume function for `key`, with `error` raised before its first instruction."""
    code = shared_resume(key)
    function = types.FunctionType(code, sys._getframe(1).f_globals, code.co_name, None, cells or None)
    return _C.raise_in(function, args, error)
