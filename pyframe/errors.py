"""The exceptions of pyframe. Subclasses of `PyframeError` are public, for users to catch; subclasses of `TraceSignal`
control the tracer and never leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .core.guard import UserLine


class PyframeError(Exception):
    """Base of every error that pyframe raises on its own account."""


class UserError(PyframeError):
    """A wrong argument, option or backend; the message says what is accepted."""


class Unsupported(PyframeError):
    """Raised under ``fullgraph=True`` where a graph break would be needed."""


class BackendCompilerFailed(PyframeError):
    """A backend raised while it compiled a graph; ``inner_exception`` (also ``__cause__``) is its exception, None
    where it returned something that cannot be called."""

    def __init__(self, message: str, inner_exception: BaseException | None = None) -> None:
        super().__init__(message)
        self.inner_exception = inner_exception


class RecompileLimitExceeded(PyframeError):
    """Raised under ``fullgraph=True`` when a function was recompiled too often."""


class RecompileError(PyframeError, RuntimeError):
    """A function would be captured anew where the stance "fail_on_recompile" or config.error_on_recompile forbids."""


class InternalError(PyframeError):
    """A bug in pyframe.  Never swallowed."""


class TraceSignal(BaseException):
    """Base of the signals that unwind the tracer; never seen by users, never caught by traced programs."""


class GraphBreak(TraceSignal):
    """Tracing cannot go past this instruction: compile what there is, run it for real, resume after it.

    ``kind`` is an id of ``core.breaks.CATALOGUE``; ``detail`` says what exactly; ``stack`` the user's frames,
    outermost first."""

    def __init__(self, kind: str, detail: str, stack: Sequence[UserLine] = (), **context: Any) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.stack, self.context = kind, detail, tuple(stack), context


class Restart(TraceSignal):
    """A speculation failed and was recorded; trace the frame again from its start."""


class SkipFrame(TraceSignal):
    """Nothing of this frame can be captured, or with `nothing` need be: run it by the default evaluator.  Under
    ``fullgraph=True`` an error, unless there is nothing to capture."""

    def __init__(self, reason: str, nothing: bool = False) -> None:
        super().__init__(reason)
        self.nothing = nothing
