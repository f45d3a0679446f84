"""The public functions whose calls captures treat specially and that need nothing of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _C, metrics

compilers: list[Callable[..., Any]] = []  # the public `compile`: a captured function that calls it does not trace it


def graph_break() -> None:
    """Break the graph here during capture; does nothing otherwise."""


def is_compiling() -> bool:
    """True while the caller is being captured."""
    return False


def reset() -> None:
    """Discard all captures and set the counters to 0."""
    _C.reset_all()
    metrics.clear()
