"""Suppresses what torch logs when an operator fails on fake tensors. The record would be redundant: the program raises
the same error when it runs. torch's logger has the filter only while a capture is in progress."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from inductor.process.compile_lock import compile_lock

T = TypeVar("T")

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")


class _Quiet(threading.local):
    """A context manager that drops log records of this thread; it is also the logging filter that does so."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exc: Any) -> None:
        self.depth -= 1

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        return self.depth == 0


quiet = _Quiet()
_captures: dict[object, int] = {}  # the captures in progress, nested ones too, and the id of the thread of each


def with_filter(capture: Callable[[], T]) -> T:
    """Run `capture()`, in which `with quiet` has an effect. The filter is on torch's logger from the beginning of the
    first to the end of the last of the captures that overlap, in whichever threads they are."""
    key, depth = object(), quiet.depth
    try:
        with compile_lock:
            _captures[key] = threading.get_ident()
            _LOGGER.addFilter(quiet)
        return capture()
    finally:
        quiet.depth = depth  # an exception at the start of `__exit__` leaves it too large
        try:
            _end(key)
        except BaseException:  # Ctrl-C: repeated from the start, which has the same result
            _end(key)
            raise


def _end(*keys: object) -> None:
    with compile_lock:
        for key in keys:
            _captures.pop(key, None)
        if not _captures:
            _LOGGER.removeFilter(quiet)


def _after_fork_in_child() -> None:
    """The captures of other threads do not exist in the child."""
    me = threading.get_ident()
    _end(*[key for key, thread in _captures.items() if thread != me])


os.register_at_fork(after_in_child=_after_fork_in_child)
