"""Arguments that stand for a frame that a graph break suspended (`emit/suspended_frames.py` creates them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import _C
from ...core.source import Source
from ..protocol.base import HeldVar, Var
from ..tracer import Tracer


class SuspendedCalleeVar(HeldVar):
    """A `_C.SuspendedFrame` that the traced frame is about to call. The call is made at run time."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.break_again(*self.value.reason)


def wrap_suspended(tx: Tracer, value: Any, source: Source | None) -> Var:
    tx.guard(source, "TYPE", _C.SuspendedFrame)
    return SuspendedCalleeVar(value, source)
