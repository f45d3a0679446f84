"""From CPython 3.12 on a comprehension is part of its function: its variable and a local of the same name are two."""

from __future__ import annotations

import pytest

import pyframe


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


@pytest.mark.parametrize("fn", [broken_behind, broken_inside, not_broken])
def test_as_eager(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for x in (20, 21):
        assert compiled(x) == fn(x)
