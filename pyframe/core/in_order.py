"""Marks functions that a graph must call in program order.

A backend does not compile a call of such a function: it splits the graph there, and runs everything before the call
first.  The call may raise, run the program's own code, or depend on state that earlier operations change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def in_order(fn: F) -> F:
    """Mark `fn` as a function before which backends split the graph."""
    fn.in_order = True  # type: ignore[attr-defined]
    return fn
