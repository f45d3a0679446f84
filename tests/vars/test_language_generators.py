"""Generators and generator expressions over tensors: traced into one graph, with eager's results."""
# ruff: noqa: F821, F841, F842, UP028, UP031, UP032, UP037

from __future__ import annotations

from typing import Any

import pytest
from language_support import Table, agree

case = Table()


# ---- generators ----
def count_up(n: int) -> Any:
    for i in range(n):
        yield i


@case()
def generator_loop(x):
    total = x
    for i in count_up(4):
        total = total + i * x
    return total


@case()
def generator_lazy(x):
    seen = []

    def rows():
        for row in x:
            seen.append("row")
            yield row

    first = next(rows())
    return first + len(seen), seen


@case()
def yield_from_return(x):
    def inner():
        got = yield x
        yield x + got
        return x * 2

    def outer():
        result = yield from inner()
        yield result + 1

    it = outer()
    a = next(it)
    b = it.send(3)
    c = next(it)
    return a, b, c, list(it)


@case()
def generator_throw(x):
    log = []

    def body():
        try:
            yield x
        except ValueError as error:
            log.append(str(error))
            yield x + 1
        finally:
            log.append("closed")

    it = body()
    next(it)
    y = it.throw(ValueError("thrown"))
    it.close()
    return y, log


@case()
def generator_close_runs_finally(x):
    log = []

    def body():
        try:
            yield x
            log.append("not reached")
        finally:
            log.append("finally")

    it = body()
    y = next(it)
    it.close()
    return y * 2, log, next(it, "done")


@case()
def generator_return_value(x):
    def body():
        yield x
        return 7

    it = body()
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return x * stop.value
    return None


@case()
def generator_expressions(x):
    squares = (x * i for i in range(3) if i != 1)
    return sum(squares), list(i + j for i in range(2) for j in range(i + 1)), tuple(a for a in (x, x + 1))


@case()
def generator_yield_from_list(x):
    def body():
        yield from [x, x + 1]
        yield from "ab"
        yield from (i for i in range(2))

    return list(body())


@case()
def generator_unpacked(x):
    def body():
        yield x
        yield x + 1
        yield x + 2

    a, *b = body()
    return a, b, [*body(), *body()], max(v for v in (1, 5, 2))


@case()
def recursive_generator(x):
    def walk(tree):
        if isinstance(tree, list):
            for item in tree:
                yield from walk(item)
        else:
            yield tree

    return [leaf * 2 for leaf in walk([x, [x + 1, [x + 2]], 3])]


@case()
def generator_exception(x):
    def body():
        yield x
        raise KeyError("inside")

    total = x
    try:
        for v in body():
            total = total + v
    except KeyError as error:
        return total, error.args
    return None


@case()
def generator_stop_becomes_runtime_error(x):
    def body():
        yield x
        raise StopIteration("x")

    try:
        list(body())
    except RuntimeError as error:
        return x + 1, str(error)
    return None


@case()
def generator_throw_through_yield_from(x):
    def inner(n):
        while True:
            try:
                n = yield n
            except ValueError as error:
                n = 7 + len(error.args)

    def outer(n):
        yield (yield from inner(n))

    driven = outer(x.size(0))
    next(driven)
    return driven.throw(ValueError("x")) * x


@pytest.mark.parametrize("row", case, ids=Table.name)
def test_whole_graph(row: Any) -> None:
    agree(*row)
