"""Exceptions that say why a graph is not compiled, and which of them reach the caller."""

from __future__ import annotations


class Unsupported(Exception):
    """The graph cannot be compiled and runs with ATen operators; the message says why."""


class CompileError(RuntimeError):
    """Raised with the option `strict`: the graph could not be compiled, for the reason in the message."""


class InternalCompileError(CompileError):
    """Raised with PYFRAME_STRICT=internal: the compiler raised an exception that it does not raise on purpose."""


# Always raised to the caller instead of falling back to ATen: out of memory, or an error that `strict` asked for.
PASSED = (MemoryError, CompileError)
