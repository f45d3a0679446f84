"""Exceptions that say why a graph is not compiled, and which of them reach the caller."""

from __future__ import annotations


class Unsupported(Exception):
    """The graph cannot be compiled and runs with ATen operators; the message says why."""


class CompileError(RuntimeError):
    """Raised with the option `strict`: the graph could not be compiled, for the reason in the message."""


class InternalCompileError(CompileError):
    """Raised with PYFRAME_STRICT=internal: the compiler raised an exception that it does not raise on purpose."""


class TransformError(RuntimeError):
    """A transform of the user raised, or made a graph that cannot stand for the one it was given."""


# Always raised to the caller instead of falling back to ATen: out of memory, an error that `strict` asked for, or one
# in a transform, without which the graph is not what the user wants.
PASSED = (MemoryError, CompileError, TransformError)
