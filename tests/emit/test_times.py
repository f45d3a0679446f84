"""Programs that measure time: the clock is read at run time, and what it says is not a constant of a capture."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
import torch

import pyframe
from pyframe.testing import CompileCounter


@pytest.mark.parametrize("backend", ["own", "other"])
@pytest.mark.parametrize("clock", [time.perf_counter, time.time, time.monotonic])
def test_elapsed_time(clock: Any, backend: str) -> None:
    counter = CompileCounter()
    times: list[float] = []

    def f(x):
        start = clock()
        y = x.sin()
        end = clock()
        times.append(end - start)
        return y + 1, end >= start

    def other(gm: Any, inputs: Any) -> Any:
        return counter(gm, inputs)

    compiled = pyframe.compile(f, backend="eager" if backend == "own" else other)
    x = torch.ones(3)
    for _ in range(12):
        times.clear()
        y, later = compiled(x)
        assert later and torch.equal(y, x.sin() + 1) and len(times) == 1 and 0 <= times[0] < 60
    assert counter.frame_count <= 4  # of two parts, with the first values and with any


def test_integers_and_dates():
    counter = CompileCounter()

    def f(x):
        start = time.perf_counter_ns()
        today = datetime.datetime.now()
        y = x.sin()
        return y + 1, time.perf_counter_ns() - start, datetime.datetime.now() - today

    compiled = pyframe.compile(f, backend=lambda gm, inputs: counter(gm, inputs))
    for _ in range(12):
        y, nanoseconds, passed = compiled(torch.ones(3))
        assert nanoseconds > 0 and passed >= datetime.timedelta() and y.shape == (3,)
    assert counter.frame_count <= 4  # of two parts, with the first values and with any
