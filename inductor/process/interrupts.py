"""Delays the program's signal handlers while a capture imports modules.

A handler that raises (Ctrl-C) would leave a package half imported. What the package had registered permanently, such as
torch's operators, would stay registered, and the next import would fail. CPython calls handlers between two
instructions of the main thread; here they are called again once the import has ended.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from torch._library.simple_registry import find_torch_dispatch_rule

_IMPORT_GLOBALS: Any = vars(importlib._bootstrap)
_SIGNALS = tuple(map(int, signal.valid_signals()))
# Functions that torch calls from C++ and that must not raise, because an exception there ends the process. This one
# imports modules, and a delayed handler would otherwise run in it when the import ends.
_NOTHING_RAISED = {find_torch_dispatch_rule.__code__}
_SECONDS = 0.005  # delay before the signal is sent again


class HandlersBetweenImports:
    """Context manager that, in the main thread, delays signal handlers during imports that begin inside it. It does
    nothing in other threads, where CPython runs no handlers, or when nested."""

    __slots__ = ("frame", "replaced")
    active = False  # whether one is active in the main thread

    def __init__(self) -> None:
        self.replaced: dict[int, tuple[Any, Any]] = {}
        self.frame: FrameType | None = None

    def __enter__(self) -> None:
        cls = HandlersBetweenImports
        if cls.active or threading.current_thread() is not threading.main_thread():
            return
        self.frame = sys._getframe(1)
        try:
            cls.active = True
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    waiting = self._waiting(handler)
                    self.replaced[number] = handler, waiting
                    signal.signal(number, waiting)
        except BaseException:  # raised by a handler that ran meanwhile
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.frame is None:
            return
        self.frame = None
        HandlersBetweenImports.active = False
        for number, (handler, waiting) in self.replaced.items():
            if signal.getsignal(number) is waiting:  # unless the program has installed another handler
                signal.signal(number, handler)

    def _waiting(self, handler: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def call(number: int, frame: FrameType | None) -> None:
            if self._must_wait(frame) and _send_later(number):
                return
            handler(number, frame)

        return call

    def _must_wait(self, frame: FrameType | None) -> bool:
        """Whether `frame` is inside an import, or a function that must not raise, that began inside this context."""
        waiting = False
        while frame is not None and self.frame is not None:
            if frame is self.frame:
                return waiting
            waiting = waiting or frame.f_globals is _IMPORT_GLOBALS or frame.f_code in _NOTHING_RAISED
            frame = frame.f_back
        return False


def _send_later(number: int) -> bool:
    """Send the signal to the main thread again after a short delay. False if no thread can be started."""

    def send() -> None:
        time.sleep(_SECONDS)
        main = threading.main_thread()
        if main.is_alive() and main.ident is not None:
            signal.pthread_kill(main.ident, number)

    try:
        threading.Thread(target=send, name="interrupt", daemon=True).start()
    except RuntimeError:  # the interpreter is shutting down
        return False
    return True
