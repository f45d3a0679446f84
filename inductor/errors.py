"""Exceptions that say why a graph is not compiled, and which of them reach the caller."""

from __future__ import annotations


class Unsupported(Exception):
    """The graph has to run as it is; the message says why."""


class CompileError(RuntimeError):
    """With the option `strict`: the graph could not be compiled, for the reason in the message."""


class InternalCompileError(CompileError):
    """With PYFRAME_STRICT=internal: the compiler raised an exception that it does not raise on purpose."""


# Raised to the caller, never a reason to run a graph with ATen: no memory is left, or an error was asked for.
PASSED = (MemoryError, CompileError)
