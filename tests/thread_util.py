"""Runs a test's work in several threads that start together."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


def in_threads(
    work: Callable[[int], Any], count: int = 32, seconds: float = 60, switch_interval: float | None = None
) -> None:
    """Run `work(i)` in `count` threads; what one of them raised is raised here. A thread that has not ended after
    `seconds` is a deadlock. `switch_interval`: seconds between switches of threads meanwhile, as Python has them."""
    start, errors = threading.Barrier(count), []

    def body(i: int) -> None:
        start.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(switch_interval or interval)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    if errors:
        raise errors[0]
