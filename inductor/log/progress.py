"""A progress line for calls that capture and compile for long: the function, the phase, a count and tqdm's estimate.

It appears after two seconds, on a terminal only, and only if tqdm is installed. No other thread runs for it: phases and
counts of the compiler itself update the line.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..budget import Budget, active

DELAY_SECONDS = 2.0
# What tqdm shows where the number of parts is not known: it would print a rate and question marks.
_UNCOUNTED, _COUNTED = "{desc}, {elapsed}", "{desc}: {n_fmt} {unit}, {elapsed}"
_wanted = os.environ.get("PYFRAME_PROGRESS", "1") != "0"
_current = threading.local()  # `job`: what this thread compiles, if that may be shown


class _Job:
    """One outermost compilation of a thread. `line`: its tqdm, once it has taken long enough."""

    def __init__(self, what: str, budget: Budget | None) -> None:
        self.what, self.start, self.budget = what, time.monotonic(), budget
        self.line: Any = None
        self.phase, self.done, self.total, self.unit = "capture", 0, 0, "parts"

    def update(self) -> None:
        """Show the phase and the count, if it is time for that."""
        if self.line is None:
            if time.monotonic() - self.start < DELAY_SECONDS:
                return
            about = self.about()
            tqdm = importlib.import_module("tqdm").tqdm
            unwatched = type("Line", (tqdm,), {"monitor_interval": 0})  # tqdm starts no thread for it
            self.line = unwatched(file=sys.stderr, leave=False, desc=about, bar_format=_UNCOUNTED)
        line = self.line
        if self.done == 0:
            line.reset()  # tqdm's estimate is that of one phase
            line.set_description_str(self.about(), refresh=False)
        line.total, line.n, line.unit = self.total or None, self.done, self.unit
        line.bar_format = None if self.total else _COUNTED if self.done else _UNCOUNTED
        line.refresh()

    def about(self) -> str:
        """What is compiled, the phase, and how much of the budget is spent."""
        spent = "" if self.budget is None else f" ({self.budget.spent:.0f} of {self.budget.seconds:g} s)"
        return f"pyframe: {self.what}: {self.phase}{spent}"


def show_progress(wanted: bool) -> None:
    """Whether compilations that begin from now on may show a line."""
    global _wanted
    _wanted = wanted


def is_shown() -> bool:
    """Whether a line can be shown: it is wanted, stderr is a terminal, and tqdm is installed."""
    return _wanted and sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None


@contextlib.contextmanager
def compiling(what: str) -> Iterator[None]:
    """The block compiles `what`, the name of a function. Blocks inside of it in the same thread change nothing."""
    if getattr(_current, "job", None) is not None or not is_shown():
        yield
        return
    job = _current.job = _Job(what, active())
    try:
        yield
    finally:
        _current.job = None
        if job.line is not None:
            job.line.close()


def enter_phase(name: str, total: int = 0, unit: str = "parts") -> None:
    """The current thread's compilation enters this phase, which has `total` parts if that is known, called `unit`."""
    job = getattr(_current, "job", None)
    if job is not None:
        job.phase, job.done, job.total, job.unit = name, 0, total, unit
        job.update()


def advance() -> None:
    """One part of the phase is done."""
    job = getattr(_current, "job", None)
    if job is not None:
        job.done += 1
        job.update()
