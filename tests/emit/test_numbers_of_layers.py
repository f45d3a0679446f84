"""Numbers and texts that each iteration of a loop reads from another object, such as the number of a layer: one capture
of the loop's body serves all of them if it needs no value; otherwise they are constants of each capture."""

from __future__ import annotations

import types

import pytest
import torch

import pyframe
from pyframe.metrics import counters

OFFSETS = {number: float(number) for number in range(9)}


class Layer(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number, self.name = number, f"layer{number}"
        self.cell = torch.nn.Linear(2, 2)

    def forward(self, x, cache):
        return self.use(self.cell(x), cache)


class Scaled(Layer):
    def use(self, x, cache):
        return x * self.number


class Keyed(Layer):
    def use(self, x, cache):
        return x + OFFSETS[self.number]


class Named(Layer):
    def use(self, x, cache):
        cache[self.name] = x
        return x


class InTorch(Layer):
    def use(self, x, cache):
        return torch.nn.functional.dropout(x, self.number / 10, training=False).roll(self.number)


class Text(Layer):
    def use(self, x, cache):
        return getattr(self, "cell" if self.name.endswith("1") else "other", self.cell)(x)


def run(layers, x):
    cache = {}
    for layer in layers:
        x = layer(x, cache)
        torch._dynamo.graph_break()
    return x, cache


def measured(layers):
    x = torch.randn(2, 2, requires_grad=True)
    own = types.FunctionType(run.__code__.replace(), globals())  # what varied in other tests is known by code
    compiled = pyframe.compile(own, backend="eager")
    for _ in range(2):
        want, got = run(layers, x), compiled(layers, x)
        torch.testing.assert_close(got, want)
    return counters["graphs"], dict(counters["graph_breaks"])


@pytest.mark.parametrize("kind", [Keyed, Named, InTorch, Text])
def test_a_value_that_is_needed_is_a_constant_of_each_capture(kind):
    graphs, breaks = measured([kind(number) for number in range(5)])
    assert set(breaks) == {"explicit-break"}
    assert graphs <= 5


def test_a_value_that_is_not_needed_varies():
    graphs, breaks = measured([Scaled(number) for number in range(5)])
    assert graphs == 2 and set(breaks) == {"explicit-break"}


class Counter:
    def __init__(self):
        self.count = 0


def count(counter, x, found):
    for _ in range(20):
        found[counter.count] = x.sin() + 1
        counter.count += 1
        torch._dynamo.graph_break()
    return found


def test_a_counter_is_no_constant():
    x = torch.randn(3)
    got = pyframe.compile(count, backend="eager")(Counter(), x, {})
    torch.testing.assert_close(got, count(Counter(), x, {}))
    assert counters["graphs"] <= 4, dict(counters)


class Other(Layer):
    def forward(self, x, cache):
        return self.cell(x)


def test_a_value_that_only_some_iterations_have_is_a_constant():
    """`number` and the dict of the layer are read in the captures of `InTorch` only."""
    plain = Other(1)
    del plain.number
    layers = [InTorch(1), plain, InTorch(1), plain]
    graphs, breaks = measured(layers)
    assert graphs == 2 and set(breaks) == {"explicit-break"}


def breaks_at(x, at):
    for number in range(4):
        if number == at:
            torch._dynamo.graph_break()
        if number + at > 2:
            x = x * (number + at)
    return x


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_branch_compares_a_value_with_an_argument(backend):
    """The guard of the branch computes the comparison after the trace is gone, and the argument is a constant of it."""
    compiled = pyframe.compile(breaks_at, backend=backend)
    x = torch.randn(3)
    for at in (0, 2, 3):
        torch.testing.assert_close(compiled(x, at), breaks_at(x, at))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("convert, values", [(int, [1.5, -0.0, float("inf"), 2.5]), (float, [1, 2, 1 << 1100, 3])])
def test_a_conversion_that_fails_reaches_its_handler(convert, values, backend):
    def program(x):
        found = []
        for value in values:
            torch._dynamo.graph_break()
            found.append(value // 0.5 if convert is int else value + 1)
            try:
                found.append(convert(value))
            except OverflowError:
                found.append("handled")
        return x + 1, found

    x = torch.randn(3)
    assert repr(pyframe.compile(program, backend=backend)(x)) == repr(program(x))
