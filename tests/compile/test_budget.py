"""`options={"budget_s": 30}`: what is not compiled when the budget is spent runs uncompiled, and the reports name it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import inductor
import pyframe
from inductor import background, budget, generate
from inductor.budget import Budget, OverBudget
from inductor.log import progress

NO_CACHE = {"cache": False}


class Clock:
    """The time that budgets see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(budget, "time", self)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def after(function: Callable[..., Any], clock: Clock, seconds: float) -> Callable[..., Any]:
    """`function`, which takes these seconds by the clock."""

    def call(*args: Any, **kwargs: Any) -> Any:
        clock.now += seconds
        return function(*args, **kwargs)

    return call


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    pyframe.graph_break()
    return y.cos() * 2


def test_frames_that_are_left_run_eagerly(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "schedule", after(generate.schedule, clock, 20))
    x = torch.randn(5)
    explained = pyframe.explain(broken, options={**NO_CACHE, "budget_s": 15})(x)
    torch.testing.assert_close(explained.result, broken(x))
    # the graph before the break spent it, and runs with ATen; the rest of the function is not captured
    assert explained.graph_count == 1 and pyframe.counters["over_budget"] == 2 and pyframe.counters["kernels"] == 0
    told = "the compile budget of 15 s is spent"
    assert f"not compiled: {told}" in str(explained) and f"runs eagerly: {told}" in str(explained)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_calls_are_right_wherever_it_ends(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, training: bool, dynamic: bool
) -> None:
    for name in ("lower_graph", "schedule", "codegen"):
        monkeypatch.setattr(generate, name, after(getattr(generate, name), clock, 1))
    for seconds in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 100.0):
        fast = pyframe.compile(lambda x: broken(x) * seconds, dynamic=dynamic, options={**NO_CACHE, "budget_s": seconds})
        for size in (4, 5):
            x = torch.randn(size, requires_grad=training)
            torch.testing.assert_close(fast(x), broken(x) * seconds)
            if training:
                (got,), (want,) = (torch.autograd.grad((f(x) * seconds).sum(), x) for f in (fast, lambda x: broken(x) * seconds))
                torch.testing.assert_close(got, want)


def test_nothing_is_left_out_within_the_budget() -> None:
    explained = pyframe.explain(broken, options={**NO_CACHE, "budget_s": 1000, "strict": True})(torch.randn(5))
    assert explained.graph_count == 2 and pyframe.counters["over_budget"] == 0 and pyframe.counters["kernels"] == 2


def test_a_spent_budget_is_no_error_of_fullgraph_and_strict(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "schedule", after(generate.schedule, clock, 20))
    fast = pyframe.compile(torch.sin, fullgraph=True, options={**NO_CACHE, "budget_s": 15, "strict": True})
    for x in (torch.randn(4), torch.randn(2, 3), torch.randn(2, 3, 4)):
        torch.testing.assert_close(fast(x), x.sin())


def test_kernels_that_are_being_built_are_finished_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, build = threading.Event(), background.build_kernels
    monkeypatch.setattr(background, "build_kernels", lambda *args: opened.wait(60) and build(*args))
    monkeypatch.setattr(budget.Budget, "left", lambda self: 0.01)
    runs: list[int] = []
    aten = background.run_with_aten
    monkeypatch.setattr(background, "run_with_aten", lambda gm: lambda *args: runs.append(1) or aten(gm)(*args))
    fast, x = pyframe.compile(lambda x: x.sin() * 3, options={**NO_CACHE, "budget_s": 60}), torch.randn(3)
    torch.testing.assert_close(fast(x), x.sin() * 3)
    opened.set()
    assert len(runs) == 1 and pyframe.wait_for_kernels(60)
    torch.testing.assert_close(fast(x), x.sin() * 3)
    assert len(runs) == 1


def test_graphs_that_share_a_budget(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "schedule", after(generate.schedule, clock, 4))
    shared, x = Budget(10), torch.randn(3, 4)
    for k, left in enumerate((6, 2, 0, 0)):
        gm = torch.fx.symbolic_trace(nn.Sequential(*[nn.Tanh() for _ in range(k + 1)]))
        call = inductor.compile_fx(gm, [x], options={**NO_CACHE, "budget_s": shared})
        torch.testing.assert_close(call(x), gm(x))
        assert shared.left() == left
        assert (gm.meta["compile_report"].fallback is None) == (k < 2)


def test_accounts(clock: Clock) -> None:
    spent = Budget(10)
    with spent.spending():
        clock.now += 4
        with Budget(1).spending():  # part of the outer block
            clock.now += 3
            budget.check()
            assert budget.left() == 3
    assert spent.spent == 7 and budget.left() == float("inf")
    with spent.spending(), pytest.raises(OverBudget, match="the compile budget of 10 s is spent"):
        clock.now += 3
        budget.check()
    assert Budget(3) == Budget(3) != Budget(4) and hash(Budget(3)) == hash(Budget(3.0))


def test_the_progress_line_tells_how_much_is_spent(clock: Clock) -> None:
    with Budget(30).spending():
        clock.now += 12
        assert progress._Job("f", budget.active()).about() == "pyframe: f: capture (12 of 30 s)"
    assert progress._Job("f", budget.active()).about() == "pyframe: f: capture"


def test_a_budget_without_end() -> None:
    fast, x = pyframe.compile(lambda x: x.sin() + 1, options={"budget_s": float("inf"), "cache": False}), torch.ones(3)
    torch.testing.assert_close(fast(x), x.sin() + 1)
    assert not pyframe.counters["over_budget"] and not pyframe.counters["fallbacks"]
