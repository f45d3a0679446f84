"""How long compilation may take, for `options={"budget_s": 30}`.

A budget belongs to one `compile`. What is traced, generated or built for it takes from it; when it is spent, what is
not compiled yet runs uncompiled. It is compared with the clock when a phase of a compilation begins, so that one phase
may exceed it. Kernels that are being built then are finished in the background.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

from .errors import Unsupported

_active = threading.local()  # `budget` and `start`: of the outermost `spending` block of this thread


class OverBudget(Unsupported):
    """A graph is not compiled because the budget is spent."""


class Budget:
    """Seconds for compilation. Budgets of the same number of seconds are equal, as options are."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._spent = 0.0
        self._lock = threading.Lock()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budget) and self.seconds == other.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __str__(self) -> str:
        return f"the compile budget of {self.seconds:g} s is spent"

    @property
    def spent(self) -> float:
        """The seconds that were spent, those of this thread's block included."""
        mine = time.monotonic() - _active.start if getattr(_active, "budget", None) is self else 0.0
        return self._spent + mine

    def left(self) -> float:
        """The seconds that are left; 0 if it is spent."""
        return max(0.0, self.seconds - self.spent)

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """The block takes from the budget. Blocks inside of it in the same thread change nothing."""
        if getattr(_active, "budget", None) is not None:
            yield
            return
        _active.budget, _active.start = self, time.monotonic()
        try:
            yield
        finally:
            seconds, _active.budget = time.monotonic() - _active.start, None
            with self._lock:
                self._spent += seconds


def spending(budget: Budget | None) -> contextlib.AbstractContextManager[None]:
    """`budget.spending()`; nothing without a budget."""
    return contextlib.nullcontext() if budget is None else budget.spending()


def active() -> Budget | None:
    """The budget from which this thread takes."""
    return getattr(_active, "budget", None)


def left() -> float:
    """The seconds that this thread may still spend; infinite without a budget."""
    budget = active()
    return math.inf if budget is None else budget.left()


def check() -> None:
    """OverBudget if this thread's budget is spent."""
    budget = active()
    if budget is not None and not budget.left():
        raise OverBudget(str(budget))
