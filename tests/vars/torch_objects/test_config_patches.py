"""Patches of torch's own settings (`config.patch`) in traced functions."""

from __future__ import annotations

import pytest
import torch
from torch._functorch import config
from util import check


def patched(x):
    with config.patch(activation_memory_budget=0.5):
        return x * 2


def read_inside(x):
    before = config.activation_memory_budget
    with config.patch("activation_memory_budget", 0.5):
        outer = config.activation_memory_budget
        with config.patch({"activation_memory_budget": 0.25}):
            inner = config.activation_memory_budget
        again = config.activation_memory_budget
    return x * 2, before, outer, inner, again, config.activation_memory_budget


def left_by_an_error(x):
    try:
        with config.patch(activation_memory_budget=0.5):
            raise ValueError
    except ValueError:
        pass
    return x * 2, config.activation_memory_budget


def break_inside(x):
    with config.patch(activation_memory_budget=0.5):
        y = x + 1
        print(end="")
        inside = config.activation_memory_budget
    return y * 2, inside, config.activation_memory_budget


@pytest.mark.parametrize("fn", [patched, read_inside, left_by_an_error], ids=lambda fn: fn.__name__)
def test_one_graph(fn):
    check(fn, torch.ones(3), breaks=0, graphs=1)


def test_a_break_inside():
    check(break_inside, torch.ones(3))
