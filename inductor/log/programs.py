"""Where the compiler hands on its graphs after each stage and pass, if someone wants to see them (`pyframe.stages`)."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator

from torch import fx

Sink = Callable[[str, fx.GraphModule], None]
_sink: contextvars.ContextVar[Sink | None] = contextvars.ContextVar("stage_programs", default=None)


@contextlib.contextmanager
def noted_in(sink: Sink) -> Iterator[None]:
    """Within the block, `sink(stage, graph)` is called after each stage. The graph changes afterwards."""
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)


def note(stage: str, gm: fx.GraphModule) -> None:
    """Hand on the graph that a stage or pass has made."""
    sink = _sink.get()
    if sink is not None:
        sink(stage, gm)
