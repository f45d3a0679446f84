"""Many threads at once, and memory after compiling and dropping functions."""

from __future__ import annotations

import gc
import linecache
import weakref

import torch
from thread_util import in_threads
from torch import nn

import pyframe
from pyframe import _C

THREADS = 32


def made(i):
    names = {"torch": torch, "pyframe": pyframe}
    exec(f"def made(x, n):\n    y = x * {i} + n\n    pyframe.graph_break()\n    return y.sin() + n", names)
    return names["made"]


def test_one_function_captured_by_all_at_once():
    def program(x, n):
        y = x * n
        pyframe.graph_break()
        return y + n

    fn = pyframe.compile(program, backend="eager", options={"recompile_limit": 64})

    def work(i):
        x = torch.full((3,), float(i))
        for n in (1, 2, i % 4, 1):
            torch.testing.assert_close(fn(x, n), program(x, n), rtol=0, atol=0)

    in_threads(work, THREADS, switch_interval=1e-5)
    assert 1 <= len(_C.entries(program)) <= 8  # who waited for another's capture uses it


def test_different_functions_compiled_at_once():
    functions = [made(i) for i in range(THREADS)]

    def work(i):
        x = torch.arange(4.0)
        for function in (functions[i], functions[(i + 1) % THREADS]):
            fn = pyframe.compile(function, backend="eager")
            for n in (1, 1, 2):
                torch.testing.assert_close(fn(x, n), function(x, n), rtol=0, atol=0)

    in_threads(work, THREADS, switch_interval=1e-5)


def test_kernels_compiled_at_once():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))
    fn = pyframe.compile(net)
    x = torch.randn(2, 4)
    expected = net(x)

    def work(i):
        with torch.no_grad():
            for _ in range(5):
                torch.testing.assert_close(fn(x), expected)

    in_threads(work, THREADS, switch_interval=1e-5)


def test_switches_during_calls():
    """Resetting and changing the stance while others call: results stay right."""

    def program(x):
        return x.sin() + 1

    fn = pyframe.compile(program, backend="eager")
    x = torch.arange(3.0)
    expected = program(x)

    def work(i):
        for turn in range(10):
            if i == 0:
                pyframe.reset()
            elif i == 1:
                with pyframe.set_stance("force_eager"):
                    fn(x)
            torch.testing.assert_close(fn(x), expected)

    in_threads(work, THREADS, switch_interval=1e-5)


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_a_function_takes_its_entries_with_it():
    function = made(3)
    fn = pyframe.compile(function, backend="eager")
    fn(torch.ones(3), 1)
    entries = [weakref.ref(function.__code__)]
    (entry,) = _C.entries(function)
    state = entry.code
    entries.append(weakref.ref(state))
    del function, fn, entry, state
    gc.collect()
    assert [ref() for ref in entries] == [None, None]


def test_a_compiled_function_takes_its_entries_with_it():
    def program(x):
        return x + 1

    first, second = (pyframe.compile(program, backend="eager", isolate_recompiles=True) for _ in range(2))
    first(torch.ones(2)), second(torch.ones(2))
    assert len(_C.entries(program)) == 2
    del first
    gc.collect()
    assert len(_C.entries(program)) == 1


def alive() -> int:
    linecache.clearcache()  # torch.fx leaves the text of every graph there
    for _ in range(4):  # chains of finalizers
        gc.collect()
    return len(gc.get_objects())


def test_compiling_and_dropping_leaks_nothing():
    def once(i):
        net = nn.Linear(2, 2)
        compiled = pyframe.compile(net, backend="eager")
        compiled(torch.ones(1, 2))
        fn = pyframe.compile(made(5), backend="eager")
        fn(torch.ones(3), i % 3)

    for i in range(10):
        once(i)
    objects, memory = alive(), resident()
    for i in range(60):
        once(i)
    grown = alive() - objects
    assert grown < 60, f"{grown} objects after 60 rounds"
    assert resident() - memory < 16 << 20
