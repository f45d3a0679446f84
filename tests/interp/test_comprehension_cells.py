"""From CPython 3.12 on a comprehension is part of its function: its variable and a local of the same name are two."""

from __future__ import annotations

import pytest

import pyframe
from pyframe.testing import trace_everything


def broken_behind(x):
    kept = [(lambda: i) for i in range(5)]
    i = x
    print(end="")
    return [f() for f in kept], i


def broken_inside(x):
    i = x
    kept = [(print(end=""), lambda: i)[1] for i in range(3)]
    return [f() for f in kept], i


def not_broken(x):
    i = x
    kept = {(lambda: i) for i in range(5)}
    return {f() for f in kept}, i


def a_cell_itself(x):
    i = x
    kept = [(lambda: i) for i in range(5)]
    own = lambda: i  # noqa: E731
    i += 1
    return [f() for f in kept], own(), i


def raises_inside(x):
    i = x
    own = lambda: i  # noqa: E731
    try:
        [(lambda: i, 1 // (2 - i)) for i in range(5)]
    except ZeroDivisionError:
        i += 1
    return own(), i


@pytest.mark.parametrize("fn", [broken_behind, broken_inside, not_broken, a_cell_itself, raises_inside])
def test_as_eager(fn):
    compiled, expected = pyframe.compile(fn, backend="eager"), [fn(x) for x in (20, 21)]
    assert [compiled(x) for x in (20, 21)] == expected
    with trace_everything():
        traced = [fn(x) for x in (20, 21)]
    assert traced == expected
