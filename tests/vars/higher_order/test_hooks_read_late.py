"""Hooks of tensors read what cells, containers and attributes hold when the backward pass runs, not what they held when
the hook was registered."""

from __future__ import annotations

import pytest
import torch

import pyframe
from pyframe.metrics import counters


class Settings:
    factor = 1.0


SETTINGS = Settings()


def cell(x):
    factor = 1.0
    y = x * 2
    y.register_hook(lambda g: g * factor)
    factor = 5.0
    return y.sum()


def item_of_a_list(x):
    factors, y = [1.0], x * 2
    y.register_hook(lambda g: g * factors[0])
    factors[0] = 3.0
    return y.sum()


def attribute(x):
    y = x * 2
    y.register_hook(lambda g: g * SETTINGS.factor)
    SETTINGS.factor = 4.0
    return y.sum()


def two_hooks_one_removed(x):
    factor, y = 1.0, x * 2
    handle = y.register_hook(lambda g: g * factor)
    y.register_hook(lambda g: g + factor)
    factor = 5.0
    handle.remove()
    return y.sum()


def tensor_computed_later(x):
    y = x * 2
    y.register_hook(lambda g: g * z)
    z = x.detach().sin()
    return y.sum()


def pass_before_the_change(x):
    factor, y = 1.0, x * 2
    y.register_hook(lambda g: g * factor)
    gradient = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    factor = 5.0
    return (y * gradient.detach()).sum()


def changed_after_a_break(x):
    factors, y = [1.0], x * 2
    y.register_hook(lambda g: g * factors[0])
    pyframe.graph_break()
    factors[0] = 3.0
    return y.sum()


def gradient_of(fn):
    SETTINGS.factor = 1.0
    x = torch.arange(1.0, 4.0, requires_grad=True)
    fn(x).backward()
    return x.grad


ONE_GRAPH = (cell, item_of_a_list, attribute, two_hooks_one_removed)


@pytest.mark.parametrize("fn", (*ONE_GRAPH, tensor_computed_later, pass_before_the_change, changed_after_a_break))
def test_gradients_are_those_of_eager(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(gradient_of(compiled), gradient_of(fn))
    if fn in ONE_GRAPH:
        assert not counters["graph_breaks"]


def test_the_caller_changes_what_the_hook_reads():
    def fn(x):
        factors, y = [1.0], x * 2
        y.register_hook(lambda g: g * factors[0])
        return y.sum(), factors

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        total, factors = compiled(x)
        factors[0] = 7.0
        total.backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 14.0))


def test_the_caller_changes_a_container_that_existed_before():
    def fn(x, settings):
        y = x * 3
        y.register_hook(lambda g: g * settings["factor"])
        return y.sum()

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        x, settings = torch.ones(3, requires_grad=True), {"factor": 2.0}
        total = compiled(x, settings)
        settings["factor"] = 5.0
        total.backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 15.0))
