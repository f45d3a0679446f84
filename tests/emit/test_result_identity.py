"""Results that contain one list twice, or themselves, are built as in eager."""

from __future__ import annotations

import torch

import pyframe

X = torch.ones(3)


def capture(fn):
    compiled = pyframe.compile(fn, backend="eager")
    return [compiled(X) for _ in range(2)]


def test_a_new_list_that_is_returned_twice_is_one_list():
    def f(x):
        numbers = [1]
        return x + 1, numbers, [numbers, (numbers,)]

    for _, first, (second, (third,)) in capture(f):
        assert first is second is third == [1]


def test_each_call_returns_new_lists():
    def f(x):
        return x + 1, [1], [1]

    (_, first, second), (_, third, fourth) = capture(f)
    assert len({id(each) for each in (first, second, third, fourth)}) == 4


def test_a_tuple_with_a_tensor_that_is_returned_twice_is_one_tuple():
    def f(x):
        pair = (x + 1, 2)
        return [pair, pair]

    for first, second in capture(f):
        assert first is second


def test_a_list_that_contains_itself():
    def f(x):
        found = [x + 1]
        found.append(found)
        return found

    for found in capture(f):
        assert found[1] is found
        torch.testing.assert_close(found[0], X + 1)
