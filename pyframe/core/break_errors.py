"""Whether a graph break is an error where a frame is called."""

from __future__ import annotations

import sys
import threading

_state = threading.local()


def is_error() -> bool:
    """Whether a graph break is currently an error in this thread, as `error_on_graph_break` or torch's function of that
    name has set it."""
    return is_switched_on() or _is_error_of_torch()


def is_switched_on() -> bool:
    """What `switch` has set in this thread."""
    return getattr(_state, "on", False)


def switch(on: bool) -> None:
    """Make graph breaks errors in this thread, or allow them again."""
    _state.on = on


def _is_error_of_torch() -> bool:
    """What `torch._dynamo.error_on_graph_break` has set: a variable of a module that only programs import which use
    it."""
    return getattr(sys.modules.get("torch._dynamo.utils"), "_error_on_graph_break", False) is True
