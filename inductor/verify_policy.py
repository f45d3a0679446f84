"""Decides at which calls `verify` checks a compiled graph: at the first call, or at a random share of the calls."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .extension import _C

VARIABLE = "PYFRAME_VERIFY"
OFF = "off"


@dataclass(frozen=True)
class Policy:
    """How often to check: a share `rate` of the calls, for at most that share of the time; None: first calls only."""

    rate: float | None

    @staticmethod
    def of(value: Any) -> Policy | None:
        """The policy for option `verify`: "first", "off", a rate above 0 and up to 1, or None (PYFRAME_VERIFY decides).
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
    """The time that this process has spent on checks, since this module was imported."""

    def __init__(self) -> None:
        self.random = random.Random()  # does not disturb the program's own generator
        self.start = time.perf_counter()
        self.spent = 0.0

    def allows(self, rate: float, expected: float) -> bool:
        """Whether a check of about `expected` seconds keeps the time for checks within the share `rate`."""
        return self.spent + expected <= rate * (time.perf_counter() - self.start)

    def next_call(self, rate: float) -> int:
        """The number of calls until the next check, drawn so that every call is equally likely to be checked."""
        return 1 if rate >= 1 else 1 + int(self.random.expovariate(1.0) / -math.log1p(-rate))


budget = _Budget()


class PythonSampler:
    """The Python implementation of `_C.Sampler`."""

    def __init__(self, target: Callable[..., Any], check: Callable[..., Any], countdown: int) -> None:
        self.target, self.check, self.countdown = target, check, countdown

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.countdown > 0:
            self.countdown -= 1
            if not self.countdown:
                return self.check(*args, **kwargs)
        return self.target(*args, **kwargs)


def sampler(target: Callable[..., Any], check: Callable[..., Any], countdown: int) -> Any:
    """A callable that calls `target`, except that it calls `check` once when `countdown` reaches 0."""
    return (PythonSampler if _C is None else _C.Sampler)(target, check, countdown)
