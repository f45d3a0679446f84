"""Why a graph is not compiled."""

from __future__ import annotations


class Unsupported(Exception):
    """The graph has to run as it is; the message says why."""


class CompileError(RuntimeError):
    """With the option `strict`: the graph could not be compiled, for the reason in the message."""
