"""Coroutines and asynchronous generators that are driven in the captured function are traced as generators are."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from typing import Any

import pytest
import torch
from language_support import same

import pyframe
from pyframe.metrics import counters

LOG: list[Any] = []
X = torch.arange(1.0, 5.0)


def finish(coroutine):
    """The result of a coroutine that waits for nothing."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as end:
        return end.value


class Error(Exception):
    pass


class Gives:
    def __init__(self, number):
        self.number = number

    def __await__(self):
        got = yield self.number
        return got or 1


class Manager:
    def __init__(self, swallows):
        self.swallows = swallows

    async def __aenter__(self):
        LOG.append("in")
        return 3

    async def __aexit__(self, kind, value, traceback):
        LOG.append(("out", kind and kind.__name__))
        return self.swallows


@types.coroutine
def pause(value):
    got = yield value
    return got


@contextlib.asynccontextmanager
async def managed(value):
    LOG.append("in")
    try:
        yield value
    finally:
        LOG.append("out")


async def plus_one(x):
    return x.sin() + 1


async def counted(x):
    for i in range(3):
        yield x + i


async def paused(x):
    for i in range(2):
        yield x * await pause(("inner", i))


async def logged(x):
    try:
        for i in range(3):
            try:
                LOG.append((yield x + i))
            except Error:
                LOG.append("caught")
                yield x * 100
    finally:
        LOG.append("finally")


def awaits(x):
    async def outer(x):
        return await plus_one(await plus_one(x)) * 2

    return finish(outer(x))


def passes_values_through(x):
    async def outer(x):
        async for item in paused(x):
            x = x + item + await pause("outer")
        else:
            x = x * 2
        return x + await Gives(5)

    coroutine, seen, got = outer(x), [], None
    try:
        while True:
            seen.append(coroutine.send(got))
            got = 2
    except StopIteration as end:
        return end.value, seen


def comprehensions(x):
    async def inner(v):
        return v

    async def outer(x):
        doubled = [item * 2 async for item in counted(x)]
        table = {i: await inner(i) for i in range(3)}
        lazily = [item async for item in (each async for each in counted(x))]
        return doubled, table, lazily, [await each for each in (inner(1), inner(2))]

    return finish(outer(x))


def context_managers(x):
    async def outer(x):
        async with managed(x + 1) as y, Manager(True) as m, Manager(False):
            x = y + m
            raise Error
        return x * 2

    return finish(outer(x))


def methods_of_async_generators(x):
    async def outer(x):
        items = logged(x)
        found = [await items.__anext__(), await items.asend(7), await items.athrow(Error), await anext(items)]
        await items.aclose()
        try:
            await items.__anext__()
        except StopAsyncIteration:
            found.append("end")
        await items.aclose()
        return [*found, await anext(aiter(items), "default")]

    return finish(outer(x))


def throw_and_close(x):
    async def waits(x):
        try:
            await Gives(1)
        except KeyError:
            return x * 2
        finally:
            LOG.append("left")

    first, second, third = waits(x), waits(x), waits(x)
    first.send(None)
    second.send(None)
    second.close()
    third.close()
    try:
        first.throw(KeyError("key"))
    except StopIteration as end:
        return end.value


def errors(x):
    def message(coroutine):
        try:
            finish(coroutine)
        except Exception as error:
            return type(error).__name__, str(error)

    async def awaits(value):
        await value

    async def iterates(value):
        async for _ in value:
            pass

    async def enters(value):
        async with value:
            pass

    async def twice(coroutine):
        await coroutine
        await coroutine

    async def stops(kind):
        raise kind
        yield

    ended = plus_one(x)
    finish(ended)
    found = [message(fn(value)) for fn in (awaits, iterates, enters) for value in (3, None, [1], Error())]
    found += [message(twice(plus_one(x))), message(iterates(stops(StopAsyncIteration)))]
    for use in (iter, next, len):
        try:
            use(ended)
        except TypeError as error:
            found.append(str(error))
    return x + 1, found


def states(x):
    coroutine = plus_one(x)
    before = inspect.getcoroutinestate(coroutine), coroutine.cr_running, coroutine.__name__
    kinds = inspect.iscoroutine(coroutine), inspect.isawaitable(coroutine), inspect.iscoroutinefunction(plus_one)
    finish(coroutine)
    return x * 2, before, kinds, inspect.getcoroutinestate(coroutine)


def left_early(x):
    async def outer(x):
        async for item in counted(x):
            return item * 2

    return finish(outer(x))


ONE_GRAPH = (
    awaits, passes_values_through, comprehensions, context_managers, methods_of_async_generators, throw_and_close,
    errors, states, left_early,
)  # fmt: skip


@pytest.mark.parametrize("fn", ONE_GRAPH, ids=lambda fn: fn.__name__)
def test_one_graph(fn):
    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    LOG.clear()
    want = fn(X), LOG[:]
    for _ in range(2):
        LOG.clear()
        assert same((compiled(X), LOG[:]), want)


def run_by_a_loop(x):
    async def later(x, n):
        await asyncio.sleep(0)
        return x.sin() * n

    async def both(x):
        first, second = await asyncio.gather(later(x, 1), later(x, 2))
        return first + second

    return asyncio.run(both(x * 2)) + 1


def breaks_inside(x):
    async def prints(x):
        print(end="")
        return x + 1

    async def outer(x):
        return await prints(x * 2) * 3

    return finish(outer(x)) + 1


def suspended_in_a_try(x):
    async def outer(x):
        async for item in logged(x):
            return item

    return finish(outer(x)) + 1


@pytest.mark.parametrize("fn", (run_by_a_loop, breaks_inside, suspended_in_a_try), ids=lambda fn: fn.__name__)
def test_as_in_eager(fn):
    compiled = pyframe.compile(fn, backend="eager")
    LOG.clear()
    want = fn(X), LOG[:]
    for _ in range(2):
        LOG.clear()
        assert same((compiled(X), LOG[:]), want)


def test_a_coroutine_that_is_returned_is_awaited_by_the_caller():
    def fn(x):
        y = x * 2
        return y, plus_one(y)

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        first, coroutine = compiled(X)
        assert same((first, finish(coroutine)), (X * 2, (X * 2).sin() + 1))
    assert counters["graphs"] == 1


def test_a_coroutine_that_nobody_awaits_is_warned_about():
    def fn(x):
        plus_one(x)
        return x + 1

    compiled = pyframe.compile(fn, backend="eager")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="plus_one.* was never awaited"):
            assert same(compiled(X), X + 1)
