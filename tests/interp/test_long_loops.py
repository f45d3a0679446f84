"""Loops that exceed the instruction limit run untraced; the code around them is captured. Results are eager's."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from util import check

import pyframe

X = torch.arange(6.0).reshape(2, 3)
N = 200
LIMIT = 300  # instructions


def counted(x: Any) -> Any:
    total = 0
    x = x + 1
    for i in range(N):
        total += i
    return x * total, i


def not_entered(x: Any) -> Any:
    for n in (0, N, 0):
        for i in range(n):
            last = i
        x = x + n
    return x, last


def unbound_behind(x: Any) -> Any:
    x = x + 1
    for n in range(N):
        if n == N - 1:
            del n
    x = x * 2
    return x, n


def left_by_break(x: Any) -> Any:
    x = x + 1
    found = None
    for i in range(10 * N):
        if i * i > N * N:
            found = i
            break
    else:
        return x - 1
    return x * found, i


def left_by_return(x: Any) -> Any:
    x = x.sin()
    for i in range(10 * N):
        for j in (1, 2):
            if i * j > N:
                return x * i, j
    return x


def while_loop(x: Any) -> Any:
    i = n = 0
    x = x + 1
    while i < N and n >= 0:
        i += 1
        if i % 3:
            continue
        n += i
    return x + n, i


def while_true(x: Any) -> Any:
    n = 0
    while True:
        n += 1
        if n > N:
            break
    return x + n


def nested(x: Any) -> Any:
    n = 0
    for i in range(N):
        for j in range(3):
            n += i * j
    return x + n


def inner_only(x: Any) -> Any:
    n = 0
    for k in range(3):
        x = x * 2
        for i in range(N):
            n += i
        x = x + n
    return x, n, k, i


def in_an_argument(x: Any) -> Any:
    return torch.add(x, sum([i for i in range(N) if i % 2]), alpha=len([j for j in range(N)]))


def handled_inside(x: Any) -> Any:
    n = 0
    for i in range(N):
        try:
            if i % 2:
                raise ValueError(i)
        except ValueError as error:
            n += error.args[0]
        finally:
            n += 1
    return x + n


def left_while_handling(x: Any) -> Any:
    n = 0
    for i in range(10 * N):
        try:
            if i > N:
                raise KeyError(i)
            n += 1
        except KeyError as error:
            if n > 1:
                n += error.args[0]
                break
    return x + n, sys.exc_info()[0]


def raises_out_of_it(x: Any) -> Any:
    x, n = x + 1, 0
    try:
        for i in range(10 * N):
            n += 1
            if i == N:
                raise LookupError(i)
    except LookupError as error:
        x = x * error.args[0]
    return x + n


def raises_to_the_caller(x: Any) -> Any:
    x = x + 1
    for i in range(10 * N):
        1 / (N - i)
    return x


def in_a_handler(x: Any) -> Any:
    try:
        raise ValueError("first")
    except ValueError as error:
        n = 0
        for _ in range(N):
            n += 1
        x = x + n
        try:
            raise KeyError(n)
        except KeyError as second:
            return x, repr(second.__context__), repr(error)


class Manager:
    def __init__(self) -> None:
        self.log: list[Any] = []

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> bool:
        self.log.append(kind)
        return True


def in_a_with(x: Any) -> Any:
    manager = Manager()
    with manager:
        n = 0
        for i in range(10 * N):
            with manager:
                n += 1
                if i == N:
                    break
                if i % 50 == 7:
                    raise ValueError
        x = x + n
    return x, len(manager.log), manager.log[-1]


def cells(x: Any) -> Any:
    n = 0

    def add(by: int) -> None:
        nonlocal n
        n += by

    for i in range(N):
        add(i)
        get = lambda: i + n
    x = x + n
    return x, get(), add(1), n


def grows_a_list(x: Any) -> Any:
    x = x + 1
    items, seen = [], {}
    for i in range(N):
        items.append(i)
        seen[i] = items[-1]
    return x + sum(items), items, seen


def writes_what_it_was_given(x: Any, held: Any) -> Any:
    y = x * 2
    held.append(0)
    for i in range(N):
        held.append(i)
    return y + len(held)


def with_operations(x: Any) -> Any:
    for i in range(40 * N):
        if i % (10 * N) == 0:
            x = x * 2
    return x


def recursive(x: Any, depth: int = 12) -> Any:
    return x + 1 if depth == 0 else recursive(x, depth - 1) + _count(depth)


def _count(depth: int) -> int:
    return 1 if depth < 2 else _count(depth - 1) + _count(depth - 2)


def long_call(x: Any) -> Any:
    return _helper(x.cos(), N).sin() + _helper(x, 2)


def _helper(x: Any, n: int) -> Any:
    total = 0
    for i in range(n):
        total += i
    return x * total


def generators(x: Any) -> Any:
    items = (i * i for i in range(N))
    total = sum(i for i in items if i % 2)
    return x * total, max(map(lambda i: i % 7, range(N))), sorted(range(N), key=lambda i: -i)[:2]


def argument(x: Any, held: Any) -> Any:
    total = 0
    for i in held:
        total += i
    return x * total, held


PROGRAMS = [
    counted, not_entered, unbound_behind, left_by_break, left_by_return, while_loop, while_true, nested, inner_only,
    in_an_argument, handled_inside, left_while_handling, raises_out_of_it, raises_to_the_caller, in_a_handler,
    in_a_with, cells, grows_a_list, writes_what_it_was_given, with_operations, recursive, long_call, generators,
    argument,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_results_are_those_of_eager(fn):
    before = pyframe.counters["graph_breaks"]["instruction-limit"]
    with pyframe.config.patch(instruction_limit=LIMIT):
        check(fn, X, *[list(range(N))] * (fn in (argument, writes_what_it_was_given)))
    assert pyframe.counters["graph_breaks"]["instruction-limit"] > before
