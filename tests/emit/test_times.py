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
    assert counter.frame_count <= 3  # the part that reads times: with the first values and with any


def test_what_a_part_only_passes_on_is_not_read():
    counter = CompileCounter()
    texts = iter(range(100))
    seen: list[str] = []

    @pyframe.disable
    def text() -> str:
        return f"text {next(texts)}"

    @pyframe.disable
    def note(text: str) -> None:
        seen.append(text)

    def f(x):
        found = text()
        y = x.sin()
        note(found)
        return y + 1, found

    compiled = pyframe.compile(f, backend=counter)
    for number in range(12):
        assert compiled(torch.ones(3))[1] == seen[-1] == f"text {number}"
    assert counter.frame_count == 2


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
