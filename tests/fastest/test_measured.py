"""`options={"measure": True}`: the faster of a compiled graph and of ATen is kept, as measured in the program's calls."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pyframe
from inductor import compile as compiler
from inductor.cudagraphs.device import devices
from inductor.fastest import readings, trial
from inductor.fastest.choice import Choice, Choices
from inductor.fastest.trial import CLEAR, ENOUGH, MARGIN, MOST, PENDING, SKIPPED, decided
from tests.cudagraphs.fake_device import FakeDevice

MEASURED = {"measure": True, "cache": False}
SLOW, CALLS = 2e-3, SKIPPED + 2 + 2 * MOST


class Runs:
    """Which calls ran ATen (a) and which the compiled graph (c). By the clock that is read, a call takes a millisecond
    and its `delay`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.now = 0.0
        monkeypatch.setattr(readings, "time", types.SimpleNamespace(perf_counter=lambda: self.now))
        self.delay = {"a": 0.0, "c": 0.0, "backward": 0.0}
        for name, module, what in (
            ("make_callable", compiler, "c"), ("wrap", compiler, "c"), ("run_with_aten", trial, "a"),
            ("make_half", compiler, "half"),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, self._counted(getattr(module, name), what))

    def _counted(self, make: Callable[..., Any], what: str) -> Callable[..., Any]:
        def made(*args: Any) -> Callable[..., Any]:
            run = make(*args)
            if what == "half":
                return self._half(run, args[2])

            def call(*given: Any) -> Any:
                self.log.append(what)
                self.now += 1e-3 + self.delay[what]
                return run(*given)

            return call

        return made

    def _half(self, run: Callable[..., Any], label: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            if "backward" in label:
                self.now += self.delay["backward"]
            return run(*given)

        return call

    @property
    def text(self) -> str:
        return "".join(self.log)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    yield Runs(monkeypatch)


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).sum(0)


def choices(explained: Any) -> list[Choice]:
    return [c for gm in explained.graphs for c in gm.meta["compile_report"].measured]


def test_a_slow_graph_is_replaced_and_no_call_runs_twice(runs: Runs) -> None:
    runs.delay["c"] = SLOW
    fast, x = pyframe.compile(program, options=MEASURED), torch.randn(4, 5)
    for _ in range(CALLS):
        torch.testing.assert_close(fast(x), program(x))
    assert len(runs.log) == CALLS
    measured = SKIPPED + 1 + 2 * ENOUGH
    assert runs.text[:measured] == "c" * SKIPPED + "a" + "ac" * ENOUGH
    assert runs.text[measured:] == "a" * (CALLS - measured)
    assert (pyframe.counters["graphs_measured"], pyframe.counters["graphs_with_aten"]) == (1, 1)


def test_a_fast_graph_is_kept_after_few_calls_of_aten(runs: Runs) -> None:
    runs.delay["a"] = SLOW
    fast, x = pyframe.compile(program, options=MEASURED), torch.randn(4, 5)
    for _ in range(CALLS):
        torch.testing.assert_close(fast(x), program(x))
    assert runs.text == "c" * SKIPPED + "a" + "ac" * CLEAR + "c" * (CALLS - SKIPPED - 1 - 2 * CLEAR)
    assert (pyframe.counters["graphs_measured"], pyframe.counters["graphs_with_aten"]) == (1, 0)


def test_the_option_and_the_variable_turn_it_off(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.delay["c"] = 1e-4
    x = torch.randn(4, 5)

    def ran(options: dict[str, Any]) -> str:
        runs.log.clear()
        fast = pyframe.compile(lambda x: program(x) + 1, options={"cache": False, **options})
        for _ in range(SKIPPED + 2):
            fast(x)
        return runs.text

    off, on = "c" * (SKIPPED + 2), "c" * SKIPPED + "aa"
    assert ran({"measure": False}) == ran({}) == off
    monkeypatch.delenv(trial.VARIABLE)
    assert ran({"measure": False}) == off and ran({}) == ran({"measure": True}) == on
    torch.use_deterministic_algorithms(True)
    assert ran({}) == ran({"measure": True}) == off


@pytest.mark.parametrize(("where", "kept"), [("c", "a"), ("backward", "a"), ("a", "c")])
def test_a_forward_is_measured_with_its_backward(runs: Runs, where: str, kept: str) -> None:
    runs.delay[where] = SLOW
    model, same = (nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)) for _ in range(2))
    same.load_state_dict(model.state_dict())
    fast = pyframe.compile(same, options=MEASURED)
    for _ in range(CALLS):
        x = torch.randn(5, 4)
        for run in (model, fast):
            run.zero_grad()
            run(x).square().sum().backward()
        for got, want in zip(same.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(got.grad, want.grad)
    assert len(runs.log) == CALLS and runs.log[-1] == kept
    nodes = [torch.autograd.graph.get_gradient_edge(p).node for p in same.parameters()]
    assert not any(node._backward_hooks for node in nodes if hasattr(node, "_backward_hooks"))


def test_calls_whose_backward_never_comes(runs: Runs) -> None:
    runs.delay["c"] = SLOW
    model = nn.Linear(4, 3)
    fast, x = pyframe.compile(model, options=MEASURED), torch.randn(2, 4)
    for _ in range(CALLS):
        torch.testing.assert_close(fast(x), model(x))
    assert runs.log[-1] == "a"


def test_gradients_that_are_accumulated_over_calls(runs: Runs) -> None:
    runs.delay["backward"] = SLOW
    model = nn.Linear(4, 3)
    fast = pyframe.compile(model, options=MEASURED)
    for _ in range(CALLS // 4):
        xs = [torch.randn(2, 4) for _ in range(4)]
        model.zero_grad()
        torch.stack([fast(x).square().sum() for x in xs]).sum().backward()
        got = model.weight.grad
        model.zero_grad()
        torch.stack([model(x).square().sum() for x in xs]).sum().backward()
        torch.testing.assert_close(got, model.weight.grad)
    assert runs.log[-1] == "a"


@pytest.mark.parametrize("plain", [0, 1, SKIPPED, SKIPPED + 3])
def test_a_checkpoint_repeats_the_same_run(runs: Runs, plain: int) -> None:
    runs.delay["c"] = SLOW
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2))
    fast = pyframe.compile(model, options=MEASURED)
    for k in range(plain + CALLS):
        x = torch.randn(5, 4, requires_grad=True)
        y = fast(x) if k < plain else checkpoint(fast, x, use_reentrant=False)
        (got,), (want,) = (torch.autograd.grad(out.square().sum(), x) for out in (y, model(x)))
        torch.testing.assert_close(got, want)
    assert runs.text[-2 * CALLS :] == "c" * (2 * CALLS) and pyframe.counters["graphs_measured"] == 0


def test_random_numbers_and_writes_are_those_of_one_run() -> None:
    def noisy(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(1)
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    fast, x = pyframe.compile(noisy, options=MEASURED), torch.randn(64)
    total, same = torch.zeros(()), torch.zeros(())
    for k in range(CALLS):
        torch.manual_seed(k)
        got, state = fast(x, total), torch.get_rng_state()
        torch.manual_seed(k)
        torch.testing.assert_close(got, noisy(x, same))
        assert total.item() == same.item() == k + 1
        assert torch.equal(state, torch.get_rng_state())
    assert pyframe.counters["graphs_measured"] == 1


def test_explain_takes_the_choice_from_the_cache(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    runs.delay["c"] = SLOW
    options, x = {"measure": True}, torch.randn(4, 7)
    fast = pyframe.compile(program, options=options)
    for _ in range(CALLS):
        fast(x)
    explained = pyframe.explain(program, options=options)(x)
    (choice,) = choices(explained)
    assert choice.keeps_aten and choice.remembered
    assert (choice.compiled, choice.aten) == pytest.approx((1e-3 + SLOW, 1e-3))
    assert "ATen is kept: 1.00 ms a call, compiled 3.00 ms" in str(explained)


def test_a_later_process_takes_the_choice_from_the_cache(tmp_path: Path) -> None:
    """The first of two processes finds ATen faster; the second builds nothing."""
    script = tmp_path / "program.py"
    script.write_text("""
import sys, torch, pyframe
from inductor.fastest import choice, trial

def program(x):
    return (x.sin() * 2).sum(0)

if sys.argv[1] == "first":
    trial.decided = lambda times, last=False: choice.Choice(3e-3, 1e-3, True) if times else None
    fast = pyframe.compile(program, options={"measure": True})
    for _ in range(12):
        fast(torch.randn(4, 7))
    print(pyframe.counters["graphs_with_aten"])
else:
    explained = pyframe.explain(program, options={"measure": True})(torch.randn(4, 7))
    print("ATen is kept" in str(explained), pyframe.counters["kernels"])
""")
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "PYFRAME_CACHE_DIR": str(tmp_path / "cache")}
    for which, said in (("first", ["1"]), ("later", ["True", "0"])):
        line = [sys.executable, str(script), which]
        done = subprocess.run(line, capture_output=True, text=True, cwd=Path.cwd(), env=environment)
        assert done.stdout.split() == said, done.stderr


@pytest.mark.parametrize("training", [False, True])
def test_sizes_of_one_class_share_a_choice(runs: Runs, training: bool) -> None:
    runs.delay["c"] = SLOW
    fast = pyframe.compile(program, dynamic=True, options=MEASURED)

    def ran(size: int, calls: int) -> str:
        runs.log.clear()
        for _ in range(calls):
            x = torch.randn(size, 3, requires_grad=training)
            y = fast(x)
            torch.testing.assert_close(y, program(x))
            if training:
                y.sum().backward()
        return runs.text

    assert ran(40, CALLS)[-1] == "a"
    assert ran(41, 2) == ran(63, 2) == "aa"
    assert ran(64, 2) == "cc"


def test_threads_that_call_at_once(runs: Runs) -> None:
    runs.delay["c"] = SLOW
    fast, x = pyframe.compile(program, options=MEASURED), torch.randn(4, 5)
    fast(x)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(CALLS):
            if not torch.allclose(fast(x), program(x)):
                wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(runs.log) == 1 + 3 * CALLS and runs.log[-1] == "a"
    assert pyframe.counters["graphs_measured"] == 1


def test_calls_that_are_observed_are_not_measured(runs: Runs) -> None:
    fast, x = pyframe.compile(program, options=MEASURED), torch.randn(4, 5)
    for _ in range(SKIPPED):
        fast(x)
    with torch.profiler.profile():
        fast(x)
    fast(x)
    assert runs.text == "c" * SKIPPED + "ca"


def test_an_operator_that_raises_in_a_measured_call(runs: Runs) -> None:
    fast = pyframe.compile(lambda x, i: x[i].sin() * 2, options=MEASURED)
    x, good, bad = torch.randn(8), torch.tensor([1, 2]), torch.tensor([1, 9])
    for _ in range(SKIPPED):
        fast(x, good)
    for _ in range(2):
        with pytest.raises(IndexError):
            fast(x, bad)
        torch.testing.assert_close(fast(x, good), x[good].sin() * 2)


def test_graphs_that_would_not_fit_into_memory_with_aten_are_not_measured(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_free_bytes", lambda device: 2 * (20 + 20 + 5) * 4 - 1)
    fast, x = pyframe.compile(program, options=MEASURED), torch.randn(4, 5)
    for _ in range(CALLS):
        fast(x)
    assert runs.text == "c" * CALLS and pyframe.counters["graphs_measured"] == 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()
    monkeypatch.setitem(devices, "cpu", fake)
    monkeypatch.setattr(trial, "RECORDED_BY", 5)
    return fake


def test_on_a_gpu_the_longer_of_host_and_gpu_counts_and_nothing_waits(runs: Runs, gpu: FakeDevice) -> None:
    fast, x = pyframe.compile(program, options={**MEASURED, "cudagraphs": False}), torch.randn(4, 5)
    runs.delay["c"], gpu.seconds = SLOW, None
    for _ in range(CALLS):
        fast(x)
    first = "a" + "ac" * CLEAR + "c" * trial.RECORDED_BY  # ATen's first call, pairs, and then the plan may be recorded
    measured = "ac" * PENDING + "a"  # until more than PENDING pairs wait for the GPU
    assert runs.text == ("c" * SKIPPED + first + measured).ljust(CALLS, "c")
    gpu.seconds = 1e-6
    for _ in range(CALLS):
        fast(x)
    assert runs.log[-1] == "a"


def test_on_a_gpu_equal_times_of_the_gpu_keep_the_compiled_graph(runs: Runs, gpu: FakeDevice) -> None:
    fast, x = pyframe.compile(program, options={**MEASURED, "cudagraphs": False}), torch.randn(4, 5)
    runs.delay["c"], gpu.seconds = SLOW, 1.0  # the host's time is hidden by the GPU's
    for _ in range(2 * CALLS):
        fast(x)
    assert runs.log[-1] == "c" and pyframe.counters["graphs_measured"] == 1


def test_on_a_gpu_a_graph_that_is_clearly_faster_is_found_to_be_in_its_first_calls(runs: Runs, gpu: FakeDevice) -> None:
    """Here the GPU comes to the measured calls later; no further call of ATen is needed then."""
    fast, x = pyframe.compile(program, options={**MEASURED, "cudagraphs": False}), torch.randn(4, 5)
    runs.delay["a"], gpu.seconds = SLOW, None
    for _ in range(SKIPPED + 1 + 2 * CLEAR + 1):
        fast(x)
    gpu.seconds = 1e-6
    for _ in range(CALLS):
        fast(x)
    assert runs.log.count("a") == 1 + CLEAR and pyframe.counters["graphs_measured"] == 1


# ---- the decision


def decide(ratio: float, noise: Callable[[], float]) -> tuple[Choice, int]:
    """The choice for a graph that takes `ratio` times as long as ATen, and the number of pairs that it needed."""
    times: list[tuple[float, float]] = []
    for count in itertools.count(1):
        times.append((noise(), ratio * noise()))
        choice = decided(times, count >= MOST)
        if choice is not None:
            return choice, count
    raise AssertionError


def test_the_decision_without_noise() -> None:
    still = lambda: 1.0
    assert [decide(ratio, still)[0].keeps_aten for ratio in (0.5, 0.99, 1.0, 1.01, 1.05, 3.0)] == [False] * 4 + [True] * 2
    assert [decide(ratio, still)[1] for ratio in (0.5, 0.99, 1.0, 1.01, 1.05)] == [CLEAR, ENOUGH, MOST, MOST, ENOUGH]


@pytest.mark.parametrize(("ratio", "aten", "at_least"), [(0.5, False, 1.0), (0.9, False, 0.99), (1.1, True, 0.6), (1.3, True, 0.95)])
def test_the_decision_on_a_noisy_machine(ratio: float, aten: bool, at_least: float) -> None:
    """Each call takes up to 10 % longer, and one in six twice to five times as long."""
    draw = random.Random(0)
    noise = lambda: (1 + draw.random() / 10) * (draw.uniform(2, 5) if draw.random() < 1 / 6 else 1)
    right = sum(decide(ratio, noise)[0].keeps_aten == aten for _ in range(500))
    assert right >= at_least * 500


def test_equal_speed_keeps_the_compiled_graph_on_a_noisy_machine() -> None:
    draw = random.Random(0)
    assert sum(decide(1.0, lambda: 1 + draw.random() / 5)[0].keeps_aten for _ in range(500)) <= 500 * 0.1
    assert 0.9 < MARGIN < 1


def test_what_is_remembered_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    key, choice = "0" * 64, Choice(2e-6, 1e-6, True)
    Choices(key).keep({"size0": 5}, choice)
    assert Choices(key).find({"size0": 7}) == Choice(2e-6, 1e-6, True, remembered=True)
    assert Choices(key).find({"size0": 8}) is None and Choices("1" * 64).find({"size0": 5}) is None
    assert str(choice) == "ATen is kept: 1.0 us a call, compiled 2.0 us"
