"""What a `_C.SuspendedFrame` says to the trace of a frame that calls it."""

from __future__ import annotations

from typing import NamedTuple

from .guard import UserLine


class BreakReason(NamedTuple):
    """Why a graph breaks. `stack`: the user's lines, outermost first."""

    kind: str
    detail: str
    stack: tuple[UserLine, ...]
