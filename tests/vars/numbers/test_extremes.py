"""min() and max() of numbers that are read from tensors."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from util import alike

import pyframe
from pyframe.metrics import counters

INF, NAN = math.inf, math.nan


def limits(x):
    total = x.sum().item()
    return x * max(0.5, total / 2), min(0.25, total), min([1.0, total]) + 1, max(1.0, total * total) * 2


@pytest.mark.parametrize("value", [-3.0, 0.125, 0.0, -0.0, 5.0, INF, NAN])
def test_floats_of_tensors(value):
    """One graph for all values; an order with NaN decides as in Python, for the first of the arguments."""
    pyframe.reset()
    x = torch.tensor([value, 0.0])
    got, want = pyframe.compile(limits, backend="eager", fullgraph=True)(x), limits(x)
    assert repr(got) == repr(want) and counters["graphs"] == 1


@pytest.mark.parametrize("value", [-3.0, 5.0, NAN])
def test_a_constant_after_a_float_of_a_tensor(value):
    def program(x):
        total = x.sum().item()
        return max(total, 1.0, 2.0), min(total, 1.0), max(1.0, total, 3.0), x + 1

    x = torch.tensor([value, 0.0])
    assert repr(pyframe.compile(program, backend="eager")(x)) == repr(program(x))


def test_ints_of_tensors():
    def program(x):
        return max(x[0].item(), 3), min(2, x[1].item(), 7), max(x.tolist())

    compiled = pyframe.compile(program, backend="eager", fullgraph=True)
    for x in (torch.tensor([1, 2]), torch.tensor([5, -4])):
        assert compiled(x) == program(x)


def test_a_key_decides_with_its_own_values():
    def program(x):
        return max(x[0].item(), x[1].item(), key=lambda v: -v), x + 1

    x = torch.tensor([1.0, 2.0])
    assert repr(pyframe.compile(program, backend="eager")(x)) == repr(program(x))


def test_loops_of_libraries_read_numbers():
    """Their bodies are never captured on their own, so that a break at a number would leave nothing of them."""

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    pyframe.reset()
    pyframe.compile(optimizer.step, backend="eager")()
    assert counters["graphs"] == 1 and not counters["graph_breaks"]


def padded(*rows):
    longest, shortest = max(row.shape[0] for row in rows), min([row.shape[0] for row in rows])
    wide = torch.stack([F.pad(row, (0, longest - row.shape[0])) for row in rows])
    return wide * longest, torch.stack([row[:shortest] for row in rows]), max(rows[0].shape[0], 4)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_sizes_that_vary(backend):
    """One graph, whichever of the sizes is the largest; a constant beside a size is compared by a guard."""
    fast = pyframe.compile(padded, backend=backend)
    for sizes in ((5, 7, 9), (6, 8, 10), (9, 7, 8), (11, 20, 12), (20, 11, 5)):
        rows = [torch.randn(size) for size in sizes]
        alike(fast(*rows), padded(*rows))
    assert counters["graphs"] == 2 and counters["graphs_per_size"] == 0
