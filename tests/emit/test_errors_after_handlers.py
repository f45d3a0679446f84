"""Operators that raise after a graph break within a `try` that does not contain them."""

from __future__ import annotations

import pytest
import torch

import pyframe

BACKENDS = pytest.mark.parametrize("backend", ["eager", "inductor"])


def in_try(x, i):
    try:
        torch._dynamo.graph_break()
    except (IndexError, RuntimeError):
        return "handled"
    return x.index_select(0, i)


def in_finally(x, i):
    try:
        torch._dynamo.graph_break()
    finally:
        x.mul_(2)
    return torch.rand(2), x.index_select(0, i)


def in_with(x, i):
    with torch.no_grad():
        torch._dynamo.graph_break()
    x.add_(1)
    return x.index_select(0, i)


def writes_much(x, i):
    try:
        torch._dynamo.graph_break()
    finally:
        LARGE.add_(1)
    return x.index_select(0, i)


def writes_much_in_a_mode(x, i):
    with torch.no_grad():
        torch._dynamo.graph_break()
        LARGE.add_(1)
        y = x.index_select(0, i)
    LARGE.add_(1)
    return y.index_select(0, i)


LARGE = torch.zeros(100, 100)  # too large to be copied in each call


def outcome(fn, x, i):
    torch.manual_seed(0)
    LARGE.zero_()
    try:
        result = fn(x, i)
    except (IndexError, OverflowError) as error:
        result = type(error)
    return repr((result, x, LARGE[0, 0], torch.rand(1), torch.is_grad_enabled()))


@BACKENDS
@pytest.mark.parametrize("program", [in_try, in_finally, in_with, writes_much, writes_much_in_a_mode])
def test_no_handler_that_was_left_sees_the_error(program, backend):
    compiled = pyframe.compile(program, backend=backend)
    for index in (1, 0, 7, 2):
        states = []
        for run in (program, compiled):
            x = torch.arange(3.0)
            states.append(outcome(run, x, torch.tensor([index])))
        assert states[1] == states[0]


@BACKENDS
def test_an_integer_that_is_too_large_after_a_handler(backend):
    def program(x, number):
        try:
            torch._dynamo.graph_break()
        except OverflowError:
            return "handled"
        return x * number

    compiled = pyframe.compile(program, backend=backend)
    x = torch.arange(3.0)
    for number in (2, 3, 10**30, 4, -(10**25)):
        assert outcome(compiled, x, number) == outcome(program, x, number)


@BACKENDS
def test_what_precedes_an_integer_that_is_too_large_is_done(backend):
    def program(x, number, seen):
        seen.append(number)
        return x * number

    compiled = pyframe.compile(program, backend=backend)
    x = torch.arange(3.0)
    seen, expected = [], []
    for number in (2, 3, 10**30, 4):
        got = outcome(lambda *args: compiled(*args, seen), x, number)
        assert got == outcome(lambda *args: program(*args, expected), x, number)
    assert seen == expected
