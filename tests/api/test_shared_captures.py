"""Calls of `compile` with the same function and settings share captures."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import pyframe
from pyframe.testing import CompileCounter

X = torch.ones(3)


def plain(x):
    return x + 1


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def times(self, x):
        return x * self.scale


def captures(*compiled, counter):
    for fn in compiled:
        fn(X)
    return counter.frame_count


def test_the_same_function_and_settings():
    counter = CompileCounter()
    first, second = (pyframe.compile(plain, backend=counter) for _ in range(2))
    assert captures(first, second, pyframe.compile(first, backend=counter), counter=counter) == 1


@pytest.mark.parametrize(
    "settings", ({"dynamic": True}, {"fullgraph": True}, {"recompile_limit": 3}, {"isolate_recompiles": True})
)
def test_other_settings(settings):
    counter = CompileCounter()
    first, second = pyframe.compile(plain, backend=counter), pyframe.compile(plain, backend=counter, **settings)
    assert captures(first, second, counter=counter) == 2


def test_other_backends_and_their_options():
    counters = [CompileCounter(), CompileCounter()]
    compiled = [pyframe.compile(plain, backend=counter) for counter in counters]
    assert [captures(fn, counter=counter) for fn, counter in zip(compiled, counters, strict=True)] == [1, 1]

    given = []

    def backend(gm, inputs, options):
        given.append(options)
        return gm.forward

    for value in (1, 2, 2, [3], [3]):  # a list cannot be compared quickly: nothing is shared
        compiled.append(pyframe.compile(plain, backend=backend, options={"value": value}))
        compiled[-1](X)
    assert [each["value"] for each in given] in ([1, 2, [3], [3]], [1, 2, 2, [3], [3]])


def test_functions_of_the_same_code_do_not_share():
    counter = CompileCounter()

    def times(n):
        return pyframe.compile(lambda x: x * n, backend=counter, recompile_limit=2)

    made = [times(n) for n in range(6)]
    assert captures(*made, counter=counter) == 6


def test_methods():
    counter = CompileCounter()
    objects = [Scaled(2.0), Scaled(3.0)]
    compiled = [pyframe.compile(each.times, backend=counter) for each in (*objects, *objects)]
    for fn, scale in zip(compiled, (2, 3, 2, 3), strict=True):
        torch.testing.assert_close(fn(X), X * scale)
    assert counter.frame_count == 2


def test_modules():
    counter = CompileCounter()
    module = nn.Linear(3, 3)
    first, second = (pyframe.compile(module, backend=counter) for _ in range(2))
    assert captures(first, second, pyframe.compile(first, backend=counter), counter=counter) == 1
    assert captures(pyframe.compile(nn.Linear(3, 2), backend=counter), counter=counter) == 2
    torch.testing.assert_close(second(X), module(X))


def test_the_limit_counts_for_all():
    counter = CompileCounter()
    compiled = [pyframe.compile(plain, backend=counter, dynamic=False, recompile_limit=2) for _ in range(2)]
    with pytest.warns(UserWarning, match="recompile limit"):
        for size in (2, 3, 4, 5):
            for fn in compiled:
                torch.testing.assert_close(fn(torch.ones(size)), torch.ones(size) + 1)
    assert counter.frame_count == 2


@pytest.mark.parametrize("make", (lambda: (lambda x: x + 1), lambda: nn.Linear(3, 3)))
def test_captures_end_with_the_last_result(make):
    class Graph:
        def __call__(self, gm, inputs):
            self.last = weakref.ref(gm)
            return gm.forward

    backend, model = Graph(), make()
    first, second = (pyframe.compile(model, backend=backend) for _ in range(2))
    first(X)
    del first
    gc.collect()
    assert backend.last() is not None
    second(X)
    del second
    for _ in range(2):  # the classes of compiled modules are in cycles, and have finalizers
        gc.collect()
    assert backend.last() is None


@pytest.mark.parametrize("settings", ({"name": 3}, {"recompile_limit": 0}, {"isolate_recompiles": None}))
def test_wrong_values(settings):
    with pytest.raises(pyframe.UserError, match=next(iter(settings))):
        pyframe.compile(plain, **settings)


def test_decorators_pickles_and_copies_keep_the_settings():
    compiled = pyframe.compile(name="region", recompile_limit=1, isolate_recompiles=True, backend="eager")(nn.Linear(3, 3))
    assert compiled._pyframe_settings["recompile_limit"] == 1
    assert compiled._pyframe_settings["isolate_recompiles"] is True
