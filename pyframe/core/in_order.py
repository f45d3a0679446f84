"""Functions that a graph calls between the parts that are compiled: what comes before them is done before they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def in_order(fn: F) -> F:
    """Mark such a function, for backends that compile graphs in parts."""
    fn.in_order = True  # type: ignore[attr-defined]
    return fn
