"""Functions of math on numbers that vary between calls: one capture for all of them, within their domains."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from language_support import outcome, same
from util import alike

import pyframe
from pyframe.metrics import counters

X = torch.ones(2, 3)


def schedule(x, step, total):
    return x * 0.5 * (1 + math.cos(math.pi * step / total))


def many(x, f):
    return x * math.exp(-f) + math.log(f) * math.sin(f) - math.tanh(f) + math.log(f, 2) - math.log10(f) + math.erf(f)


def of_sizes(x):
    return x * math.log(x.shape[1]) + math.atan(x.shape[1]), math.log2(x.shape[1])


def caught(x, f):
    try:
        return x * math.log(f)
    except ValueError:
        return x - 1


def overflowing(x, f):
    try:
        return x + math.exp(f)
    except OverflowError:
        return x - 1


def decides(x, f):
    return x + 1 if math.sin(f) > 0 else x - 1


@pytest.mark.parametrize(
    ("fn", "calls", "most"),
    [
        (schedule, [(X, step, 100.0) for step in (1.0, 2.0, 50.0, math.nan)], 2),
        (schedule, [(X, step, 100) for step in (5, 6, 7, 50)], 2),
        (many, [(X, f) for f in (0.5, 2.0, 7.0, 1e3, 1e-9)], 1),
        (of_sizes, [(torch.ones(2, n),) for n in (3, 4, 5, 9)], 2),
        (caught, [(X, f) for f in (1.5, -1.0, 2.0, 0.0, 3.0)], 3),
        (overflowing, [(X, f) for f in (1.5, 800.0, 2.0, 1e9, math.inf)], 4),
        (decides, [(X, f) for f in (1.0, 2.0, 4.0, 5.0, 1.5)], 2),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_one_capture_serves_many(fn: Callable[..., Any], calls: list[Any], most: int) -> None:
    pyframe.reset()
    compiled = pyframe.compile(fn, backend="eager")
    for args in calls:
        expected, got = outcome(fn, args)[:2], outcome(compiled, args)[:2]
        known = same(expected, got) or torch.equal(torch.isnan(expected[1]), torch.isnan(got[1]))
        assert known, f"{fn.__name__}{args[1:]}: {expected} != {got}"
    assert 0 < counters["graphs"] <= most


def cropped(x):
    height, width = x.shape[-2:]
    top, left = int(round((height - 5) / 2.0)), round((width - 5) / 2)
    return x[..., top : top + 5, left : left + 5] * round(height / 3, 1), round(width * 0.3)


def reordered(x):
    """Floats of which torch's symbolic expressions multiply the constants first, which is less for 25."""
    n = x.shape[-1]
    part = int(n * 0.1 * 2.8)
    return x[..., :part] * part, math.ceil(n * 0.3 * 0.7), x + 1 if n * 0.1 * 2.8 >= 7 else x - 1, n + 1e17 - 1e17 > n


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(("program", "graphs"), [(cropped, 2), (reordered, 3)])
def test_ints_of_floats_of_sizes(program, graphs, backend):
    fast = pyframe.compile(program, backend=backend)
    for n in (24, 26, 25, 27, 20, 50):
        x = torch.randn(2, n, n)
        alike(fast(x), program(x))
    assert counters["graphs"] == graphs and not counters["graph_breaks"] and counters["graphs_per_size"] == 0
