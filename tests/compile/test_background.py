"""`options={"background": True}`: calls before, while and after the kernels are built, in threads, forks and at exit;
of graphs that another process compiles, and of graphs of which only the kernels are built elsewhere."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pyframe
from inductor import background
from inductor.runtime.cpp_build import BuildError

OPTIONS = {"background": True, "cache": False}


class Gate:
    """Holds the builds back until it is opened; counts calls that run with ATen, and plans."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.aten, self.plans = threading.Event(), 0, 0
        build = self.build = background.build_kernels
        run_with_aten, finished = background.run_with_aten, background.Building._finished

        def held(*args: Any) -> Any:
            assert self.opened.wait(60)
            return build(*args)

        def counted(gm: Any) -> Callable[..., Any]:
            run = run_with_aten(gm)

            def call(*args: Any) -> Any:
                self.aten += 1
                return run(*args)

            return call

        def made(building: Any, *args: Any) -> Any:
            self.plans += 1
            return finished(building, *args)

        monkeypatch.setattr(background, "build_kernels", held)
        monkeypatch.setattr(background, "run_with_aten", counted)
        monkeypatch.setattr(background.Building, "_finished", made)

    def open(self) -> None:
        self.opened.set()
        assert pyframe.wait_for_kernels(60)


@pytest.fixture(params=["graphs", "kernels"])
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What other processes make: whole graphs, or the kernels alone."""
    if request.param == "kernels":
        monkeypatch.setattr(background.client, "is_available", lambda: False)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, elsewhere: str) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open()


def test_calls_run_with_aten_until_the_kernels_are_there(gate: Gate) -> None:
    fast, x = pyframe.compile(lambda x: (x.sin() * 2).sum(0), options=OPTIONS), torch.randn(4, 5)
    for k in range(1, 4):
        torch.testing.assert_close(fast(x * k), ((x * k).sin() * 2).sum(0))
        assert (gate.aten, gate.plans) == (k, 0)
    assert not pyframe.wait_for_kernels(0.01)
    gate.open()
    for _ in range(2):
        torch.testing.assert_close(fast(x), (x.sin() * 2).sum(0))
        assert (gate.aten, gate.plans) == (3, 1)


def test_training_steps_across_the_switch(gate: Gate) -> None:
    torch.manual_seed(0)
    make = lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))
    model, same = make(), make()
    same.load_state_dict(model.state_dict())
    fast = pyframe.compile(same, options=OPTIONS)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, same)]
    for step in range(4):
        x = torch.randn(5, 6)
        for run, optimizer in zip((model, fast), optimizers):
            optimizer.zero_grad()
            run(x).square().sum().backward()
            optimizer.step()
        if step == 1:
            gate.open()
    assert (gate.aten, gate.plans) == (2, 1)
    for got, want in zip(same.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(got, want)


def test_a_backward_that_starts_before_the_switch(gate: Gate) -> None:
    fast = pyframe.compile(lambda x: x.sin() * x, options=OPTIONS)
    x = torch.randn(4, requires_grad=True)
    before = fast(x)
    gate.open()
    after = fast(x)
    for y in (before, after):
        (grad,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(grad, x.cos() * x + x.sin())
    assert (gate.aten, gate.plans) == (1, 1)


@pytest.mark.parametrize("training", [False, True])
def test_varying_sizes(gate: Gate, training: bool) -> None:
    fast = pyframe.compile(lambda x: (x * x.shape[0]).cos(), dynamic=True, options=OPTIONS)

    def check(size: int) -> None:
        x = torch.randn(size, 3, requires_grad=training)
        y = fast(x)
        torch.testing.assert_close(y, (x * size).cos())
        if training:
            torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], -(x * size).sin() * size)

    check(4)
    check(5)
    assert gate.aten == 2
    gate.open()
    for size in (4, 5, 6):
        check(size)
    assert gate.aten == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_checkpoint_repeats_what_ran(gate: Gate, dynamic: bool | None) -> None:
    """A call in a checkpoint waits for the kernels: its repetition in the backward must save the same tensors."""
    plain = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.GELU())
    fast = pyframe.compile(plain, options=OPTIONS, dynamic=dynamic)
    x = torch.randn(3, 4)
    threading.Timer(0.2, gate.opened.set).start()
    gradients = []
    for f in (fast, plain):
        loss = checkpoint(f, x, use_reentrant=False).square().sum()
        assert pyframe.wait_for_kernels(60)
        gradients.append(torch.autograd.grad(loss, list(plain.parameters())))
    torch.testing.assert_close(*gradients)
    assert gate.aten == 0


def test_writes_to_inputs_happen_once(gate: Gate) -> None:
    def add(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    fast, x = pyframe.compile(add, options=OPTIONS), torch.zeros(3)
    for k in range(1, 4):
        assert fast(x).tolist() == [2.0 * k] * 3 and x.tolist() == [k] * 3
        if k == 2:
            gate.open()


def test_kernels_that_cannot_be_built(monkeypatch: pytest.MonkeyPatch, elsewhere: str) -> None:
    start = threading.Event()

    def failing(*args: Any) -> Any:
        assert start.wait(60)
        raise BuildError("no compiler")

    monkeypatch.setattr(background, "build_kernels", failing)
    x = torch.randn(3)
    fast = pyframe.compile(lambda x: x.exp() + 1, options=OPTIONS)
    fast(x)
    start.set()
    assert pyframe.wait_for_kernels(60)
    with pytest.warns(UserWarning, match="no compiler"):
        torch.testing.assert_close(fast(x), x.exp() + 1)
    torch.testing.assert_close(fast(x), x.exp() + 1)
    start.clear()
    strict = pyframe.compile(lambda x: x.exp() + 2, options={**OPTIONS, "strict": True})
    torch.testing.assert_close(strict(x), x.exp() + 2)
    start.set()
    assert pyframe.wait_for_kernels(60)
    for _ in range(2):
        with pytest.raises(Exception, match="no compiler"):
            strict(x)


def test_several_threads_cross_the_switch(gate: Gate) -> None:
    fast, x = pyframe.compile(lambda x: x.tanh() * 3, options=OPTIONS), torch.randn(7)
    want, wrong = x.tanh() * 3, []
    fast(x)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            if not torch.allclose(fast(x), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.open()
    time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and gate.plans == 1


def test_a_call_does_not_wait_for_another_thread_that_compiles(gate: Gate) -> None:
    fast, x = pyframe.compile(lambda x: x.tanh() * 4, options=OPTIONS), torch.randn(7)
    fast(x)
    gate.open()
    held, release = threading.Event(), threading.Event()

    def compiles() -> None:
        with background.compile_lock:
            held.set()
            release.wait(60)

    other = threading.Thread(target=compiles)
    other.start()
    assert held.wait(60)
    fast(x)
    assert (gate.aten, gate.plans) == (2, 0)
    release.set()
    other.join()
    fast(x)
    assert (gate.aten, gate.plans) == (2, 1)


def test_what_is_in_the_cache_is_used_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    gate.open()
    x = torch.randn(3)
    for count in (1, 1):
        pyframe.reset()
        fast = pyframe.compile(lambda x: x.sin() - 3, options={"background": True})
        torch.testing.assert_close(fast(x), x.sin() - 3)
        assert pyframe.wait_for_kernels(60)
        assert gate.aten == count


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_builds_for_itself(gate: Gate, elsewhere: str) -> None:
    fast, x = pyframe.compile(lambda x: x.sin() * 5, options=OPTIONS), torch.randn(3)
    fast(x)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            background.build_kernels = gate.build
            status = 0 if torch.allclose(fast(x), x.sin() * 5) else 2
            if elsewhere == "graphs":  # compiled by a call of the child, which waits for no compiler
                status |= 0 if pyframe.wait_for_kernels(60) and torch.allclose(fast(x), x.sin() * 5) else 4
                status |= 0 if gate.plans == 1 else 8
            else:
                status |= 0 if (gate.aten, gate.plans) == (1, 1) else 4
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


SLOW = """
import sys, time
import torch, pyframe
f = pyframe.compile(lambda x: x.sin() + 1, options={"background": True})
x = torch.randn(3)
start = time.time()
torch.testing.assert_close(f(x), x.sin() + 1)
assert not pyframe.wait_for_kernels(0.1)
print("ran")
"""


def test_the_end_of_the_program_waits_for_no_compiler(tmp_path: Path) -> None:
    slow = tmp_path / "slow-c++"
    slow.write_text('#!/bin/sh\ncase "$*" in *--version*) exec c++ "$@";; esac\nsleep 100\n')
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "CXX": str(slow), "PYFRAME_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", SLOW], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "ran\n", done.stderr
    assert not done.stderr
