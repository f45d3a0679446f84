"""What `pyframe.compiled_autograd` returns."""

from __future__ import annotations

import contextlib

from . import engine
from .program import Settings


class CompiledAutograd(contextlib.ContextDecorator):
    """A context manager and decorator: backward passes that this thread starts inside are captured and compiled.

    settings: how; None: they run eagerly.
    """

    def __init__(self, settings: Settings | None) -> None:
        self.settings = settings

    def __enter__(self) -> None:
        engine.enter(self.settings)

    def __exit__(self, *exception: object) -> None:
        engine.leave()
