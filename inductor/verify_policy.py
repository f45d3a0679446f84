"""Decides at which calls `verify` checks a compiled graph: at the first call, or at a random share of the calls."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

try:
    from . import _C
except ModuleNotFoundError:  # built without a C compiler
    _C = None  # type: ignore[assignment]

VARIABLE = "PYFRAME_VERIFY"
OFF = "off"


@dataclass(frozen=True)
class Policy:
    """`rate` of the calls are checked, and no larger share of the time is spent on it; None: first calls only."""

    rate: float | None

    @staticmethod
    def of(value: Any) -> Policy | None:
        """From the option `verify`: "first", "off", a rate above 0 and up to 1, or None (then PYFRAME_VERIFY counts).
        ValueError for anything else."""
        if value is None:
            value = os.environ.get(VARIABLE) or None
            if value is None:
                return None
        if value == OFF:
            return None
        if value == "first":
            return Policy(None)
        try:
            rate = float(value) if not isinstance(value, bool) else math.nan
        except (TypeError, ValueError):
            rate = math.nan
        if not 0 < rate <= 1:
            raise ValueError(f"verify must be 'first', 'off' or a rate above 0 and up to 1, not {value!r}")
        return Policy(rate)


class _Budget:
    """Time spent on checks in this process since the first graph that may be checked."""

    def __init__(self) -> None:
        self.random = random.Random()  # the program's own generator is left alone
        self.start = time.perf_counter()
        self.spent = 0.0

    def allows(self, rate: float, expected: float) -> bool:
        """Whether a check that takes about `expected` seconds stays within a share `rate` of the time."""
        return self.spent + expected <= rate * (time.perf_counter() - self.start)

    def next_call(self, rate: float) -> int:
        """After how many calls the next check is due: each call is as likely to be one as any other."""
        return 1 if rate >= 1 else 1 + int(self.random.expovariate(1.0) / -math.log1p(-rate))


budget = _Budget()


class PythonSampler:
    """What `_C.Sampler` does, in Python."""

    def __init__(self, target: Callable[..., Any], check: Callable[..., Any], countdown: int) -> None:
        self.target, self.check, self.countdown = target, check, countdown

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.countdown > 0:
            self.countdown -= 1
            if not self.countdown:
                return self.check(*args, **kwargs)
        return self.target(*args, **kwargs)


def sampler(target: Callable[..., Any], check: Callable[..., Any], countdown: int) -> Any:
    """A callable with `target`, `check` and `countdown` that calls `check` when the countdown ends."""
    return (PythonSampler if _C is None else _C.Sampler)(target, check, countdown)
