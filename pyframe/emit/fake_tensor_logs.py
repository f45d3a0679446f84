"""Suppresses what torch logs when an operator fails on fake tensors. The record would be redundant: the program raises
the same error when it runs."""

from __future__ import annotations

import logging
import threading
from typing import Any


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
logging.getLogger("torch._subclasses.fake_tensor").addFilter(quiet)
