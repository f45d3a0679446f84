"""The exceptions of pyframe. Subclasses of `PyframeError` are public, for users to catch; subclasses of `TraceSignal`
control the tracer and never leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .core.guard import UserLine


class PyframeError(Exception):
    """Base class of all errors that pyframe itself raises."""


class UserError(PyframeError):
    """An invalid argument, option or backend; the message says what is accepted."""


class UnknownSetting(UserError, AttributeError):
    """The name of a setting that does not exist.  An AttributeError, because `hasattr(pyframe.config, name)` and code
    that looks a name up in all modules, such as pickle, ask in this way."""


class Unsupported(PyframeError):
    """Raised instead of breaking the graph, under ``fullgraph=True`` and ``error_on_graph_break(True)``."""


class BackendCompilerFailed(PyframeError):
    """A backend raised while compiling a graph; ``inner_exception`` (also ``__cause__``) is its exception, or None if
    the backend returned something that is not callable."""

    def __init__(self, message: str, inner_exception: BaseException | None = None) -> None:
        super().__init__(message)
        self.inner_exception = inner_exception


class RecompileLimitExceeded(PyframeError):
    """A function reached the recompile limit, with ``fullgraph=True`` or config.fail_on_recompile_limit_hit."""


class RecompileError(PyframeError, RuntimeError):
    """A function needs another capture, but the stance "fail_on_recompile" or config.error_on_recompile forbids it."""


class InternalError(PyframeError):
    """A bug in pyframe. Raised to the user unless config.suppress_errors is set."""


class TraceSignal(BaseException):
    """Base of the signals that unwind the tracer; users never see them and traced programs never catch them."""


class GraphBreak(TraceSignal):
    """Tracing cannot continue past this instruction: compile the graph so far, execute the instruction, resume after
    it.

    ``kind`` is an id of ``core.breaks.CATALOGUE``; ``detail`` is the specific cause; ``stack`` holds the user's frames,
    outermost first.
    """

    def __init__(self, kind: str, detail: str, stack: Sequence[UserLine] = (), **context: Any) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.stack, self.context = kind, detail, tuple(stack), context


class Restart(TraceSignal):
    """An assumption of the trace was wrong; the correction is recorded. Trace the frame again from its start."""


class SkipFrame(TraceSignal):
    """Run this frame uncompiled: it cannot be captured or, with `nothing`, contains nothing to capture. Under
    ``fullgraph=True`` the former is an error."""

    def __init__(self, reason: str, nothing: bool = False) -> None:
        super().__init__(reason)
        self.nothing = nothing
