"""Which backward passes are captured: refusals, threads, what nothing else in the process notices, and the graphs on
disk."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from inductor.graph_split import split_graph
from inductor.log import warnings as shown_warnings
from pyframe import counters
from pyframe.backward import recorder


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._C._dynamo.compiled_autograd.clear_cache()
    pyframe.reset()


def test_a_refused_pass_runs_eagerly_after_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes in the middle of the pass; the nodes and what they have saved stay intact."""
    known = recorder.operation
    monkeypatch.setattr(recorder, "operation", lambda name: None if name == "ExpBackward0" else known(name))
    monkeypatch.setattr(shown_warnings, "shown", set())

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 2 + 0 * ctx.saved_tensors[0]

    x = torch.randn(3, requires_grad=True)
    for k in range(2):
        x.grad = None
        with warnings.catch_warnings(record=True) as caught, pyframe.compiled_autograd(backend="eager"):
            warnings.simplefilter("always")
            Twice.apply((x.sin() * x).exp().cos()).sum().backward()
        assert len(caught) == (k == 0)
        assert counters["backward_fallbacks"] == k + 1
        found = x.grad
        x.grad = None
        Twice.apply((x.sin() * x).exp().cos()).sum().backward()
        torch.testing.assert_close(found, x.grad)
    assert counters["backward_programs"] == 0


def test_threads_take_turns() -> None:
    errors: list[BaseException] = []

    def work(size: int) -> None:
        try:
            x, w = torch.randn(size, 3), torch.randn(3, requires_grad=True)
            for _ in range(10):
                (g,) = torch.autograd.grad((x * w).tanh().sum(), w)
                with pyframe.compiled_autograd(False):
                    (wanted,) = torch.autograd.grad((x * w).tanh().sum(), w)
                torch.testing.assert_close(g, wanted)
        except BaseException as error:  # the thread would only print it
            errors.append(error)

    with pyframe.config.patch(compiled_autograd=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=work, args=(k + 2,)) for k in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not errors
    assert counters["backward_fallbacks"] == 0


def test_a_backward_in_a_hook() -> None:
    x = torch.randn(3, requires_grad=True)
    inner = torch.randn(3, requires_grad=True)

    def hook(g: torch.Tensor) -> None:
        with torch.enable_grad():
            inner.sin().sum().backward()

    x.register_hook(hook)
    with pyframe.compiled_autograd(backend="eager"):
        x.cos().sum().backward()
    torch.testing.assert_close(x.grad, -x.detach().sin())
    torch.testing.assert_close(inner.grad, inner.detach().cos())
    assert counters["backward_programs"] == 1 and counters["backward_fallbacks"] == 0


def test_compiling_a_forward_inside() -> None:
    """The compiler itself calls `torch.autograd.grad` on fake tensors."""
    x = torch.randn(4, 3, requires_grad=True)
    with pyframe.compiled_autograd(backend="inductor", options={"cache": False}):
        pyframe.compile(lambda x: (x.sin() * 2).sum(), options={"cache": False})(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert counters["backward_fallbacks"] == 0


def test_programs_keep_no_objects_of_the_user() -> None:
    class Hook:
        def __call__(self, g: torch.Tensor) -> torch.Tensor:
            return g * 2

    def train() -> weakref.ref[Any]:
        model, hook = nn.Linear(3, 2), Hook()
        model.weight.register_hook(hook)
        with pyframe.compiled_autograd(backend="eager"):
            model(torch.randn(2, 3)).sum().backward()
        return weakref.ref(hook)

    hook = train()
    assert counters["backward_programs"] == 1
    gc.collect()
    assert hook() is None


def test_explain() -> None:
    model = nn.Linear(3, 2)

    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()

    x = torch.randn(2, 3)
    assert pyframe.explain(step, backend="eager")(x).graph_count == 1
    report = pyframe.explain(step, backend="eager", options={"compiled_autograd": True})(x)
    assert report.graph_count == 2
    assert any(node.name.startswith("addmm_backward") for node in report.graphs[1].graph.nodes)


def test_graphs_are_kept_on_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    x = torch.randn(4, 3, requires_grad=True)

    def train() -> tuple[int, int]:
        torch._C._dynamo.compiled_autograd.clear_cache()
        pyframe.reset()
        x.grad = None
        with pyframe.compiled_autograd():
            (x.sin() * 2).sum().backward()
        torch.testing.assert_close(x.grad, 2 * x.detach().cos())
        return counters["cache_misses"], counters["cache_hits"]

    assert train() == (1, 0)
    assert train() == (0, 1)


def test_hooks_and_first_gradients_are_one_piece() -> None:
    """The assignments to `.grad` wait for the end of the graph, so that it is compiled in one piece."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def hook(p: nn.Parameter) -> None:
        p.grad.mul_(2)

    for p in model.parameters():
        p.register_hook(lambda g: g.clamp(-1, 1))
        p.register_post_accumulate_grad_hook(hook)
    pieces: list[int] = []

    def backend(gm: Any, inputs: Any) -> Any:
        return split_graph(gm, lambda piece, given: (pieces.append(len(piece.graph.nodes)), piece.forward)[1])

    x = torch.randn(5, 3)
    with pyframe.compiled_autograd(backend=backend):
        model(x).sum().backward()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(found, [p.grad for p in model.parameters()])
    assert len(pieces) == 1 and counters["graph_breaks"].total() == 0


def test_samples_of_operators() -> None:
    """`python -m tools.backward_suite` has all of them."""
    # in a process of its own: torch's database freezes the settings of backends
    command = [sys.executable, "-m", "tools.backward_suite", "--every", "25"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    count = re.fullmatch(r"(\d+) samples, 0 differ", done.stdout.splitlines()[-1])
    assert count is not None and int(count[1]) > 20
