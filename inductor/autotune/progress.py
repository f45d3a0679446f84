"""A progress line for tuning, on a terminal only."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each of `total` steps. It shows a line if stderr is a terminal and tqdm is
    installed. Any thread may call it."""
    if not sys.stderr.isatty() or importlib.util.find_spec("tqdm") is None:
        yield lambda: None
        return
    with importlib.import_module("tqdm").tqdm(total=total, desc=f"inductor: {what}", leave=False) as line:
        lock = threading.Lock()

        def advance() -> None:
            with lock:
                line.update()

        yield advance
