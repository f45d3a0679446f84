"""Operators whose operands are of different built-in types or of subclasses of them, and containers filled from others."""

from __future__ import annotations

import collections
import enum
import operator
import unittest
from typing import Any

import pytest
import torch
from util import same

import pyframe


class Set(set): ...


class Frozen(frozenset): ...


class Dict(dict): ...


class Int(int): ...


class Float(float): ...


class Flag(enum.Flag):
    A = 1


class Counted(int):
    """Counts how often its hash is computed."""

    def __init__(self, *args):
        self.count = 0

    def __hash__(self):
        self.count += 1
        return int.__hash__(self)


X = torch.ones(2)
SETS = [lambda: {1, 2}, lambda: frozenset([2, 3]), lambda: Set([1]), lambda: Frozen([2]), lambda: {1: 2, 5: 6}.keys()]
DICTS = [
    lambda: {1: 2},
    lambda: collections.OrderedDict({1: 3, 4: 5}),
    lambda: collections.defaultdict(int, {1: 7}),
    lambda: Dict({1: 9, 2: 3}),
]
NUMBERS = [lambda: 2, lambda: Int(3), lambda: True, lambda: 2.5, lambda: Float(1.5), lambda: 2j, lambda: Flag.A, lambda: None]
CASES = [
    (SETS, (operator.or_, operator.and_, operator.sub, operator.xor, operator.ior, operator.le, operator.eq)),
    (DICTS, (operator.or_, operator.ior, operator.eq, operator.add, operator.lt)),
    (NUMBERS, (operator.add, operator.iadd, operator.mul, operator.floordiv, operator.lshift, operator.or_, operator.lt)),
    ([lambda: collections.deque([1]), lambda: collections.OrderedDict(a=1), lambda: 1], (operator.sub, operator.lt)),
]  # fmt: skip


def shown(value: Any) -> Any:
    kind = type(value).__name__
    if isinstance(value, set | frozenset):
        return kind, sorted(value)
    return kind, list(value.items()) if isinstance(value, dict) else value


def one_graph(fn):
    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    assert same(compiled(X), fn(X))


@pytest.mark.parametrize(("values", "op"), [(values, op) for values, ops in CASES for op in ops])
def test_each_with_each(values, op):
    def fn(x):
        found = []
        for make_left in values:
            for make_right in values:
                left = make_left()
                try:
                    found.append((shown(op(left, make_right())), shown(left)))
                except TypeError as error:
                    found.append(str(error))
        return x + 1, found

    one_graph(fn)


def read(test):
    """The result of a test of an iterable, and how many items it read."""
    items = []

    def numbers():
        for number in (1, 9, 2):
            items.append(number)
            yield number

    return test(numbers()), items


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x + 1, read({1, 3}.isdisjoint), read({7}.isdisjoint), read(frozenset([9]).isdisjoint)),
        lambda x: (x + 1, read({1, 2}.issuperset), read({1, 2, 9}.issuperset), read({1, 2}.issubset)),
        lambda x: (x + 1, read({1: 1}.keys().isdisjoint), read({5: 1}.keys().isdisjoint)),
    ],
)
def test_no_more_items_are_read_than_needed(fn):
    one_graph(fn)


@pytest.mark.parametrize("kind", [set, frozenset, Set, Frozen, dict.fromkeys, lambda d: dict.fromkeys(set(d))])
def test_hashes_that_a_dict_keeps_are_not_computed_again(kind):
    def fn(x):
        keys = dict.fromkeys(map(Counted, range(4)))
        size = len(kind(keys))
        {1}.difference(keys)
        return x + 1, size, [key.count for key in keys]

    one_graph(fn)


def test_length_hints():
    def fn(x):
        found = []
        for items in ({1, 2, 3}, {1: "a", 2: "b"}, {1: 2}.items(), [1, 2], (3,), "ab", range(4), reversed([1, 2])):
            it = iter(items)
            found.append(it.__length_hint__())
            next(it)
            found.append(operator.length_hint(it))
        done = iter([1])
        return x + 1, found, list(done), done.__length_hint__()

    one_graph(fn)


def test_assert_raises():
    case = unittest.TestCase()

    def fn(x):
        with case.assertRaises(ValueError) as caught:
            int("a")
        case.assertRaises(TypeError, lambda: 1 + "a")
        with case.assertRaisesRegex(ZeroDivisionError, "division"):
            1 / 0
        return x + 1, str(caught.exception)

    one_graph(fn)
