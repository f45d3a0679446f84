"""The public exceptions again, under the module name that users of torch.compile (`torch._dynamo.exc`) look for."""

from __future__ import annotations

from .errors import (
    BackendCompilerFailed,
    InternalError,
    PyframeError,
    RecompileError,
    RecompileLimitExceeded,
    Unsupported,
    UserError,
)

__all__ = [
    "BackendCompilerFailed", "InternalError", "PyframeError", "RecompileError", "RecompileLimitExceeded",
    "Unsupported", "UserError",
]  # fmt: skip
