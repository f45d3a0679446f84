"""Marks functions that a graph must call in program order.

A backend does not compile a call of such a function: it splits the graph there, and runs everything before the call
first.  The call may raise, run the program's own code, or depend on state that earlier operations change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Passes(threading.local):
    """How many backward passes the graphs that ran in this thread have begun."""

    begun = 0


PASSES = _Passes()


def in_order(fn: F) -> F:
    """Mark `fn` as a function before which backends split the graph."""
    fn.in_order = True  # type: ignore[attr-defined]
    return fn


def may_wait(fn: F) -> F:
    """Mark `fn`, which `in_order` has marked, as a function whose effect nothing else in the graph can see. Only other
    such functions have to keep their order with it, so that a backend may call it at the end of the graph."""
    fn.may_wait = True  # type: ignore[attr-defined]
    return fn


def for_autograd(fn: F) -> F:
    """Mark `fn`, which `in_order` has marked, as a function that changes gradients or what a backward pass will do, so
    that a frame that called it cannot run again."""
    fn.for_autograd = True  # type: ignore[attr-defined]
    return fn
