"""Ranges of any length: a trace creates Vars only for the items that the program reads."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from language_support import Table, agree

import pyframe

case = Table()
LONG, HUGE = 15_000, 1 << 70


@case()
def items_of_a_long_range(x: Any) -> Any:
    r = range(LONG)
    return x + 1, len(list(r)), len([*r]), tuple(r)[-1], r.count(5), r.index(7), r[-1], 2.0 in r, "a" in r, sum(r[:9])


@case()
def iterators_of_long_ranges(x: Any) -> Any:
    it, back = iter(range(LONG)), reversed(range(LONG))
    first = next(it), next(it), next(back)
    return x + 1, first, type(it).__name__, next(zip(range(LONG), "ab")), list(itertools.islice(it, 3))


@case()
def a_loop_left_early(x: Any) -> Any:
    for i in range(HUGE):
        x = x + i
        if i == 3:
            break
    return x


@case()
def what_a_huge_range_says_of_itself(x: Any) -> Any:
    r = range(HUGE)
    it = iter(r)
    return x + 1, next(it), next(it), r[HUGE - 1], HUGE - 5 in r, bool(r), r[5:7], type(it).__name__, list(r[:2])


@case()
def the_length_of_a_huge_range(x: Any) -> Any:
    y = x + 1
    try:
        return y, len(range(HUGE))
    except OverflowError as error:
        return y, str(error)


@pytest.mark.parametrize("fn,args", case, ids=[Table.name(each) for each in case])
def test_ranges(fn, args):
    agree(fn, (torch.ones(2),))


def test_iterators_that_leave_the_function():
    def f(x):
        it, back, ended = iter(range(LONG)), reversed(range(LONG)), iter(range(1))
        return x + 1, next(it), it, next(back), back, next(ended), next(ended, None), ended

    def seen(result):
        return [list(itertools.islice(item, 3)) if hasattr(item, "__next__") else item for item in result[1:]]

    assert seen(pyframe.compile(f, backend="eager", fullgraph=True)(torch.ones(2))) == seen(f(torch.ones(2)))
