"""Iterators that existed before the frame and that it advances."""

from __future__ import annotations

import itertools

import pytest
import torch
from util import same

import pyframe
from pyframe.metrics import counters

x = torch.arange(6.0).reshape(2, 3)


def stops(x, numbers):
    n = next(numbers)
    if n > 5:
        raise ValueError(n)
    return x + n


def breaks(x, numbers):
    y = x + next(numbers)
    print(end="")
    return y * next(numbers)


@pytest.mark.parametrize("start", [(1,), (4, 3), (-2, -5), (0, 0)])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, numbers: x + next(numbers),
        lambda x, numbers: (next(numbers), x + 1)[1],
        lambda x, numbers: [x + n for n, _ in zip(numbers, range(3))],
        stops,
        breaks,
    ],
)
def test_count(fn, start):
    def run(fn, numbers):
        try:
            return fn(x, numbers)
        except ValueError as error:
            return error.args

    ours, theirs = itertools.count(*start), itertools.count(*start)
    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(6):
        assert same(run(compiled, ours), run(fn, theirs))
        assert repr(ours) == repr(theirs)


def test_a_count_is_not_captured_for_each_number():
    class Numbered:
        numbers = itertools.count(2)

        def __init__(self):
            self.number = next(Numbered.numbers)

    def fn(x):
        return x * 2, Numbered()

    compiled, graphs = pyframe.compile(fn, backend="eager", fullgraph=True), counters["graphs"]
    assert [compiled(x)[1].number for _ in range(6)] == [2, 3, 4, 5, 6, 7]
    assert counters["graphs"] <= graphs + 2


@pytest.mark.parametrize("make", [lambda: iter((1, 2, 3)), lambda: iter(range(2, 9, 3)), lambda: iter((x, x + 1))])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, items: x + sum(items),
        lambda x, items: (x + next(items), list(items)),
        lambda x, items: (x * next(items), next(items, 5), next(items, 6), next(items, 7)),
        lambda x, items: x + 1,
    ],
)
def test_rest_of_a_sequence(make, fn):
    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    for taken in (0, 0, 1):
        ours, theirs = make(), make()
        for iterator in (ours, theirs):
            list(itertools.islice(iterator, taken))
        assert same(compiled(x, ours), fn(x, theirs))
        assert same(list(ours), list(theirs))


def test_classes_of_functions_made_in_each_call():
    def fn(x):
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2

        return Double.apply(x) + torch.masked.sum(x, mask=x > 1)

    compiled, graphs = pyframe.compile(fn, backend="eager", fullgraph=True), counters["graphs"]
    for _ in range(4):
        assert same(compiled(x), fn(x))
    assert counters["graphs"] == graphs + 1
