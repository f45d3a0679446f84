"""First calls in many threads with the default backend: right, compiled once, nothing locked while a kernel builds; and
forks while another thread compiles."""

from __future__ import annotations

import contextlib
import os
import threading

import forked_python
import pytest
import torch
from thread_util import in_threads

import inductor.build
import pyframe
from inductor.ir.handler import Handler, ops
from inductor.process.compile_lock import compile_lock, make_once, without_lock
from pyframe import _C
from pyframe.metrics import counters

THREADS = 32


def numbered(i):
    """Functions with two different graphs, each a function of its own."""
    names = {"torch": torch}
    exec(f"def numbered(x):\n    return (x * {i // 2 % 2} + 1).sin().softmax(-1).sum(0)", names)
    return names["numbered"]


def test_first_calls_of_different_functions_and_sizes():
    functions = [numbered(i) for i in range(THREADS)]
    compiled = [pyframe.compile(function) for function in functions]

    def work(i):
        for size in (4, 7):
            x = torch.randn(3, size, requires_grad=bool(i % 2))
            got, want = compiled[i](x), functions[i](x)
            torch.testing.assert_close(got, want)
            if i % 2:
                pairs = zip(torch.autograd.grad(got.sum() * 2, x), torch.autograd.grad(want.sum() * 2, x))
                for gradients in pairs:
                    torch.testing.assert_close(*gradients)

    in_threads(work, THREADS, 240)


def test_one_function_is_compiled_once():
    def program(x):
        return x.sin() * 2 + x

    fn = pyframe.compile(program)
    x = torch.randn(5)

    def work(i):
        torch.testing.assert_close(fn(x), program(x))

    in_threads(work, THREADS, 240)
    assert counters["graphs"] == 1 and len(_C.entries(program)) == 1


def test_sizes_that_vary_are_compiled_once():
    fn = pyframe.compile(lambda x: (x + 1).sum(), dynamic=True)
    fn(torch.randn(3))
    misses = counters["cache_misses"] + counters["cache_hits"]

    def work(i):
        for n in range(4, 12):
            torch.testing.assert_close(fn(torch.ones(n)), torch.tensor(2.0 * n))

    in_threads(work, THREADS, 240)
    assert counters["cache_misses"] + counters["cache_hits"] - misses <= 1


def test_modes_of_threads_resets_and_exceptions_at_once():
    """Threads call one function under modes of their own while others reset, and raise in captured functions."""

    def program(x):
        return (x @ x.t()).softmax(-1) + 1

    def fails(x):
        x = x + 1
        raise LookupError(str(x.shape))

    fn, failing = pyframe.compile(program), pyframe.compile(fails)
    modes = (contextlib.nullcontext, torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16))

    def work(i):
        for turn in range(3):
            if i % 6 == 4:
                with pytest.raises(LookupError):
                    failing(torch.ones(2, 2))
            elif i % 6 == 5:
                pyframe.reset()
            else:
                x = torch.randn(4 + turn, 3, requires_grad=True)
                with modes[i % 6]():
                    got, want = fn(x), program(x)
                assert (got.dtype, got.requires_grad, got.is_inference()) == (
                    want.dtype, want.requires_grad, want.is_inference())
                torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)
                if want.requires_grad:
                    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x) for y in (got, want)),
                                               rtol=0.02, atol=0.02)
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")

    in_threads(work, 12, 240, switch_interval=1e-4)


def test_an_entry_captured_while_another_thread_changed_a_setting_is_of_one_setting(monkeypatch):
    """The default dtype becomes another one while a kernel builds: the call and those after it are eager's."""
    building, go_on, kernels = threading.Event(), threading.Event(), inductor.build.build_kernels

    def slow(*args):
        building.set()
        assert go_on.wait(60)
        return kernels(*args)

    def program(x):
        return x + torch.full((3,), 1.5)

    monkeypatch.setattr(inductor.build, "build_kernels", slow)
    fn, x, done = pyframe.compile(program), torch.ones(3), []
    thread = threading.Thread(target=lambda: done.append(fn(x)))
    thread.start()
    try:
        assert building.wait(60)
        torch.set_default_dtype(torch.float64)
        go_on.set()
        thread.join(60)
        torch.testing.assert_close([done[0], fn(x)], [program(x)] * 2)
    finally:
        go_on.set()
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(fn(x), program(x))


def test_nothing_is_locked_while_a_kernel_builds(monkeypatch):
    """Another thread captures, compiles and calls a function while the first one's kernels build."""
    building, go_on = threading.Event(), threading.Event()
    kernels = inductor.build.build_kernels
    first = threading.Thread(target=lambda: done.append(pyframe.compile(lambda x: x.cos() + 3)(torch.ones(3))))
    done = []

    def slow(*args):
        if threading.current_thread() is first:
            building.set()
            assert go_on.wait(60)
        return kernels(*args)

    monkeypatch.setattr(inductor.build, "build_kernels", slow)
    first.start()
    assert building.wait(60)
    second = []
    thread = threading.Thread(target=lambda: second.append(pyframe.compile(lambda x: x.exp() - 1)(torch.ones(3))))
    thread.start()
    thread.join(60)
    pyframe.reset()
    go_on.set()
    first.join(60)
    torch.testing.assert_close(second[0], torch.ones(3).exp() - 1)
    torch.testing.assert_close(done[0], torch.ones(3).cos() + 3)


def test_the_lock_is_as_before_whatever_is_raised():
    def fail():
        raise KeyboardInterrupt

    for nested in (fail, lambda: without_lock(fail), lambda: make_once("inner", lambda: None, fail)):
        with pytest.raises(KeyboardInterrupt):
            make_once("outer", lambda: None, lambda: without_lock(nested))
        assert not compile_lock._is_owned()
    assert make_once("outer", lambda: None, lambda: 1) == 1


def test_two_threads_that_need_what_the_other_makes_do_not_wait_forever():
    inside = threading.Barrier(2)

    def work(i):
        def outer():
            without_lock(inside.wait)
            return make_once(("a", "b")[1 - i], lambda: None, lambda: 1)

        assert make_once(("a", "b")[i], lambda: None, outer) == 1

    in_threads(work, 2, 30)


def test_the_current_handler_belongs_to_a_thread():
    class Named(Handler):
        def __init__(self, name):
            self.name = name

        def default(self, op, args):
            return self.name, op

    both = threading.Barrier(2)

    def work(i):
        with ops.using(Named(i)):
            both.wait()
            assert ops.sin(None) == (i, "sin")
            both.wait()
        with pytest.raises(NotImplementedError):
            ops.sin(None)

    in_threads(work, 2, 30)


# ---- forks

FORKS = """
import os, sys, threading, torch, pyframe
import inductor.build

# imports now what it needs: CPython never releases a module's lock that another thread held as the process was forked
torch.testing.assert_close(torch.ones(1), torch.ones(1))

def function(i):
    names = {"torch": torch}
    exec(f"def made(x):\\n    return (x + {i}).sin() * 2", names)
    return names["made"]

def right(i, grad=True):
    x = torch.arange(5.0, requires_grad=grad)  # not random: a fork copies the generator's lock as another thread holds it
    made = function(i)
    got = pyframe.compile(made)(x)
    torch.testing.assert_close(got, made(x))
    if grad:
        got.sum().backward()

def autograd_works():
    '''Not in a fork of a process in which autograd has threads for GPUs, or for the GPU that a build of torch expects.'''
    try:
        torch.ones(1, requires_grad=True).sum().backward()
    except RuntimeError:
        return False
    return True

stop = threading.Event()
"""


def run_program(text, seconds=200):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = forked_python.run(FORKS + text, environment=env, timeout=seconds)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_a_child_compiles_that_was_forked_while_another_thread_compiled():
    """Once at a moment when the other thread is in its build, then at any moment of its captures."""
    run_program("""
building, go_on, parent = threading.Event(), threading.Event(), os.getpid()
kernels = inductor.build.build_kernels
def slow(*args):
    if os.getpid() == parent and not go_on.is_set():
        building.set()
        go_on.wait(60)
    return kernels(*args)
inductor.build.build_kernels = slow
def loop():
    i = 0
    while not stop.is_set():
        right(i % 3)
        i += 1
thread = threading.Thread(target=loop, daemon=True)
thread.start()
building.wait(60)

def child():
    pid = os.fork()
    if pid == 0:
        import signal
        signal.alarm(60)
        right(100, autograd_works())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

child()
go_on.set()
for _ in range(2):
    child()
stop.set()
thread.join()
right(101)
""")


def test_children_of_multiprocessing_and_workers_of_a_data_loader():
    run_program("""
import multiprocessing
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.fn = pyframe.compile(lambda x: x * 2 + 1)
        self.fn(torch.ones(2))
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return self.fn(torch.full((2,), float(i))), self.fn(torch.full((i + 3,), float(i))).sum()

for batch, sums in torch.utils.data.DataLoader(Data(), num_workers=2):
    i = (batch[0, 0].item() - 1) / 2
    torch.testing.assert_close(sums, (i + 3) * torch.tensor([2 * i + 1]))
process = multiprocessing.get_context("fork").Process(target=lambda: right(7, autograd_works()))
process.start()
process.join()
assert process.exitcode == 0
""")
