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


PARTS = torch.nn.ModuleDict({f"part{number}": torch.nn.Linear(4, 4) for number in range(9)})


def by_name(x, names):
    for name in names:
        torch._dynamo.graph_break()
        x = PARTS[name](x)
    return x


def by_computed_name(x, names):
    for number in range(len(names)):
        torch._dynamo.graph_break()
        x = getattr(PARTS, f"part{number}")(x)
    return x


def by_name_in_pairs(x, names):
    for name, part in {name: PARTS[name] for name in names}.items():
        torch._dynamo.graph_break()
        x = part(x) + PARTS[name].bias
    return x


@pytest.mark.parametrize("program", [by_name, by_computed_name, by_name_in_pairs])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_name_is_a_constant_of_the_first_captures(program, count):
    own = types.FunctionType(program.__code__.replace(), globals())
    compiled = pyframe.compile(own, backend="eager")
    x, names = torch.randn(3, 4), [f"part{number}" for number in range(count)]
    for _ in range(2):
        torch.testing.assert_close(compiled(x, names), program(x, names))
    assert set(counters["graph_breaks"]) == {"explicit-break"}
    assert counters["graphs"] <= count


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("program", [by_name, by_computed_name])
def test_many_names_do_not_reach_the_recompile_limit(program):
    own = types.FunctionType(program.__code__.replace(), globals())
    compiled = pyframe.compile(own, backend="eager")
    x, names = torch.randn(3, 4), [f"part{number}" for number in range(9)]
    torch.testing.assert_close(compiled(x, names), program(x, names))
    assert counters["recompiles"] <= 8


def as_size(x):
    for part in list(PARTS.values())[:3]:
        shape = (*x.shape[:-1], 2, 2)
        torch._dynamo.graph_break()
        x = part(x).view(shape).flatten(-2).relu() + torch.arange(shape[0])[:, None]
    return x


def as_bound(x):
    for number in range(4):
        torch._dynamo.graph_break()
        x = torch.cat([x[:number], x[number:] + 1]) + torch.arange(number + 2).sum()
    return x


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("program, graphs", [(as_size, 4), (as_bound, 6)])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_number_that_an_operator_takes_is_a_symbol(program, graphs, backend):
    own = types.FunctionType(program.__code__.replace(), globals())
    compiled = pyframe.compile(own, backend=backend)
    for rows in (5, 5, 6, 7, 8, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), program(x))
    assert set(counters["graph_breaks"]) == {"explicit-break"}
    assert counters["graphs"] <= graphs


SCALES = [float(number) for number in range(40)]


def as_size_and_key(x):
    for number in range(40):
        torch._dynamo.graph_break()
        x = x + torch.arange(number).sum() * SCALES[number]
    return x


@pytest.mark.filterwarnings("error")
def test_a_symbol_that_captures_need_as_a_constant_is_none():
    compiled = pyframe.compile(as_size_and_key, backend="eager")
    x = torch.randn(4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), as_size_and_key(x))
    assert counters["recompiles"] <= 10
