"""The exceptions that a user of pyframe may catch, by the names that users of torch.compile look for."""

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
