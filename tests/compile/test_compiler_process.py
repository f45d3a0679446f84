"""The process that compiles graphs: what it compiles is what this process would compile, whatever happens to it."""

from __future__ import annotations

import dataclasses
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
from torch import fx, nn

import pyframe
from inductor import background
from inductor.compile_report import CompileReport
from inductor.compiler_process import client
from inductor.compiler_process.job import Job, job_of, key_of
from inductor.generate import generate, generate_training
from pyframe.metrics import counters

OPTIONS = {"background": True, "cache": False, "strict": True}


def traced(f: Callable[..., Any]) -> fx.GraphModule:
    return fx.symbolic_trace(f)


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w)).sum(-1)


def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(1) + y


def views_of_one() -> list[torch.Tensor]:
    x = torch.randn(6, 4)
    return [x[1:], x.t()[:, 2:]]


INFERENCE: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "plain": (linear, lambda: [torch.randn(3, 4), torch.randn(5, 4)]),
    "written": (adds, lambda: [torch.randn(3), torch.randn(3)]),
    "shared": (lambda x, y: x.sum(0) + y.sum(1), views_of_one),
    "strided": (lambda x: x.cos(), lambda: [torch.randn(8, 3)[::2].t()]),
    "expanded": (lambda x: x * 2, lambda: [torch.randn(3, 1).expand(3, 4)]),
    "integers": (lambda x: x.cumsum(0), lambda: [torch.arange(5)]),
    "empty": (lambda x: x + 1, lambda: [torch.empty(0, 3)]),
}


@pytest.mark.parametrize("name", INFERENCE)
def test_a_job_describes_the_graph(name: str) -> None:
    """The graph that is rebuilt of a job has the same key, and what it compiles to is the same."""
    f, make = INFERENCE[name]
    gm, inputs = traced(f), make()
    with torch.no_grad():
        job = job_of("inference", gm, inputs, None, (), False)
        assert job is not None
        again, fakes = job.rebuilt()
        assert key_of("inference", again, fakes) == job.key
        want, got = generate(gm, inputs, CompileReport()), generate(again, fakes, CompileReport())
    assert (got.spec, got.sources) == (want.spec, want.sources)


def tracked(x: torch.Tensor, leaf: bool = True) -> torch.Tensor:
    x.requires_grad_()
    return x if leaf else x * 1


TRAINING: dict[str, Callable[[], list[torch.Tensor]]] = {
    "leaf": lambda: [tracked(torch.randn(3, 4)), torch.randn(5, 4)],
    "parameter": lambda: [torch.randn(3, 4), nn.Parameter(torch.randn(5, 4))],
    "computed": lambda: [tracked(torch.randn(3, 4), leaf=False), tracked(torch.randn(5, 4))],
}


@pytest.mark.parametrize("name", TRAINING)
def test_a_job_describes_a_graph_with_gradients(name: str) -> None:
    gm, inputs = traced(linear), TRAINING[name]()
    job = job_of("training", gm, inputs, None, (), False)
    assert job is not None
    again, fakes = job.rebuilt()
    assert key_of("training", again, fakes) == job.key
    assert [type(x) is nn.Parameter or getattr(x, "_is_param", False) for x in fakes] == [
        isinstance(x, nn.Parameter) for x in inputs
    ]
    want = generate_training(gm, inputs, CompileReport(), None)
    got = generate_training(again, fakes, CompileReport(), None)
    assert got.forward.sources == want.forward.sources and got.backward[0].sources == want.backward[0].sources


@torch.library.custom_op("pyframe_test::twice_elsewhere", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_what_only_this_process_has_is_no_job() -> None:
    x = torch.randn(3)
    complex_view = torch.randn(3, dtype=torch.complex64).conj()
    assert job_of("inference", traced(lambda x: torch.ops.pyframe_test.twice_elsewhere(x)), [x], None, (), False) is None
    assert job_of("inference", traced(lambda x: x + 1), [complex_view], None, (), False) is None
    assert job_of("inference", traced(lambda x: x + 1), [torch.empty(3, device="meta")], None, (), False) is None


def compiled_elsewhere() -> int:
    assert pyframe.wait_for_kernels(100)
    return int(counters["compiled_elsewhere"])


def test_inference_and_training() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6))
    fast, x = pyframe.compile(model, options=OPTIONS), torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        assert compiled_elsewhere() == 1
        torch.testing.assert_close(fast(x), model(x))
    fast(x)
    assert compiled_elsewhere() == 2
    got = torch.autograd.grad(fast(x).square().sum(), list(model.parameters()))
    want = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(got, want)
    assert not counters["fallbacks"] and not counters["not_compiled_elsewhere"]


def test_modes_and_settings_are_those_of_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Autocast, the precision of products, the environment: of the moment of each call."""
    f, x = torch.nn.functional.linear, torch.randn(3, 3)
    fast = pyframe.compile(lambda x: f(x, x), options=OPTIONS)
    with torch.autocast("cpu"):
        fast(x)
        assert compiled_elsewhere() == 1
        torch.testing.assert_close(fast(x), f(x, x))
        assert fast(x).dtype == torch.bfloat16
    before = torch.get_float32_matmul_precision()
    other = pyframe.compile(lambda x: f(x, x) + 1, options={"background": True, "strict": True})
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    try:
        for precision in ("medium", before):  # set again, it is not what it was before in all respects
            torch.set_float32_matmul_precision(precision)
            pyframe.reset()
            other(x)
            assert compiled_elsewhere() == 1 and not counters["not_compiled_elsewhere"]
    finally:
        torch.set_float32_matmul_precision(before)
    other(x)
    assert list(tmp_path.glob("**/*.so"))


def test_frozen_parameters() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    fast, x = pyframe.compile(model, options={**OPTIONS, "freezing": True}), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        fast(x)
        assert compiled_elsewhere() == 1
        torch.testing.assert_close(fast(x), model(x))
        model[0].weight.mul_(2)  # type: ignore[operator, union-attr]
        torch.testing.assert_close(fast(x), model(x))


def test_data_dependent_parts_are_compiled_elsewhere_too() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 1
        return y[y > 1].cos() * 2

    fast, x = pyframe.compile(f, options={**OPTIONS, "strict": False}), torch.randn(9)
    for _ in range(2):
        torch.testing.assert_close(fast(x), f(x))
        assert pyframe.wait_for_kernels(100)


def test_saved_artifacts_include_what_was_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 11

    x = torch.randn(3)
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path / "first"))
    pyframe.compile(f, options={"background": True})(x)
    assert compiled_elsewhere() == 1
    saved = pyframe.save_cache_artifacts()
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path / "second"))
    assert pyframe.load_cache_artifacts(saved) >= 2
    pyframe.reset()
    torch.testing.assert_close(pyframe.compile(f, options={"background": True})(x), f(x))
    assert counters["cache_hits"] == 1 and counters["compiled_elsewhere"] == 0


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Jobs wait for this before they are sent."""
    event, run = threading.Event(), client.run

    def held(job: Job) -> Any:
        assert event.wait(100)
        return run(job)

    monkeypatch.setattr(client, "run", held)
    yield event
    event.set()


def test_a_process_that_dies(waiting: threading.Event) -> None:
    """The next call compiles the graph; the next graph is compiled by another process."""
    fast, x = pyframe.compile(lambda x: x.sin() * 7, options=OPTIONS), torch.randn(4)
    fast(x)
    process = client.start()
    process.kill()
    process.wait()
    starts = client._worker._starts
    waiting.set()
    assert pyframe.wait_for_kernels(100)
    torch.testing.assert_close(fast(x), x.sin() * 7)
    assert client._worker._starts == starts + 1
    client._worker._starts = 1


def test_a_process_that_dies_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    send = client.write

    def killed(stream: Any, job: Any) -> None:
        send(stream, job)
        client.start().kill()

    with monkeypatch.context() as patch:
        patch.setattr(client, "write", killed)
        fast, x = pyframe.compile(lambda x: x.sin() * 8, options=OPTIONS), torch.randn(4)
        for _ in range(2):
            torch.testing.assert_close(fast(x), x.sin() * 8)
            assert pyframe.wait_for_kernels(100)
    assert counters["not_compiled_elsewhere"] == 1
    torch.testing.assert_close(fast(x), x.sin() * 8)
    client._worker._starts = 1


def test_a_graph_that_differs_there_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that jobs do not describe is part of the key, so that the other process refuses the job."""
    make = background.CompiledElsewhere.__init__

    def changed(self: Any, job: Job, *args: Any) -> None:
        make(self, dataclasses.replace(job, key="0" * 64), *args)

    monkeypatch.setattr(background.CompiledElsewhere, "__init__", changed)
    fast, x = pyframe.compile(lambda x: x.sin() * 9, options=OPTIONS), torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(fast(x), x.sin() * 9)
        assert pyframe.wait_for_kernels(100)
    assert counters["not_compiled_elsewhere"] == 1 and not counters["fallbacks"] and counters["kernels"] == 1


PROGRAM = """
import os, sys, time
import torch, pyframe
from inductor.compiler_process import client
f = pyframe.compile(lambda x: x.sin() + 1, options={"background": True})
f(torch.randn(3))
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print(client.start().pid)
"""


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_it_ends_with_the_program(tmp_path: Path) -> None:
    """So does the compiler that it waits for."""
    slow, started = tmp_path / "slow-c++", tmp_path / "compilers"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) exec c++ "$@";; esac\necho $$ >> {started}\nexec sleep 100\n'
    )
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "CXX": str(slow), "PYFRAME_CACHE_DIR": str(tmp_path / "cache")}
    line = [sys.executable, "-c", PROGRAM, str(started)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0 and not done.stderr, done.stderr
    pids = [int(done.stdout), *map(int, started.read_text().split())]
    end = time.monotonic() + 30
    while any(map(_runs, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(_runs, pids))
