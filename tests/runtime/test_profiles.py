"""What torch's profiler shows of compiled code: graphs by the function they are of, kernels by their operators."""

from __future__ import annotations

import threading

import pytest
import torch

import pyframe
from inductor import _C
from inductor.runtime.plan import make_plan
from inductor.runtime.plan_spec import PlanSpec


def profiled(call):
    """The names and nesting that a profile of `call()` shows: the name of each range, and that of the one around it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.name: event.cpu_parent.name if event.cpu_parent else None for event in profile.events()}


def program(x, w):
    with torch.profiler.record_function("a range of the program's own"):
        y = x @ w
    return (y.relu() + 1).sum(-1)


def test_a_graph_and_its_kernels():
    fn, x = pyframe.compile(program), torch.randn(4, 4)
    fn(x, x)
    shown = profiled(lambda: fn(x, x))
    (graph,) = (name for name in shown if name.startswith("compiled graph of program (test_profiles.py:"))
    (kernel,) = (name for name in shown if name.startswith("kernel 0: ") and "sum" in name)
    assert shown[graph] is None and shown[kernel] == graph and shown["aten::mm"] == graph, shown


def test_both_halves_of_a_training_graph():
    fn, x, w = pyframe.compile(program), torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    fn(x, w).sum().backward()
    shown = profiled(lambda: fn(x, w).sum().backward())
    for half in ("forward", "backward"):
        assert any(name.startswith(f"compiled {half} of program (") for name in shown), shown


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = torch.nn.Linear(8, 8), torch.nn.GELU()

    def forward(self, x):
        return self.act(self.linear(x)) + x


@pytest.mark.parametrize("inference", [True, False])
def test_kernels_name_modules_and_lines(inference):
    model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Block(), Block()])})

    def run(x):
        for layer in model["layers"]:
            x = layer(x)
        return x.sum(-1)

    compiled, x = pyframe.compile(run), torch.randn(2, 8)
    line = f"test_profiles.py:{Block.forward.__code__.co_firstlineno + 1}"
    with torch.set_grad_enabled(not inference):
        compiled(x)
        shown = profiled(lambda: compiled(x) if inference else compiled(x).sum().backward())
    kernels = [name for name in shown if name.startswith("kernel ")]
    for layer in "01":
        assert any(f"layers.{layer} {line}" in name or f"layers.{layer}.act {line}" in name for name in kernels), shown
    assert inference or any("compiled backward" in shown[name] and line in name for name in kernels), shown


def test_a_cached_graph_names_the_lines_of_the_function_at_hand():
    def first(x):
        return x.sin() + 1.25

    def second(x):
        y = x.sin()

        return y + 1.25

    x = torch.randn(64)
    for function, inside in ((first, 1), (second, 3)):
        compiled = pyframe.compile(function)
        compiled(x)
        line = function.__code__.co_firstlineno + inside
        (kernel,) = (name for name in profiled(lambda: compiled(x)) if name.startswith("kernel "))  # noqa: B023
        assert f"test_profiles.py:{line}" in kernel


def test_a_call_that_raises_ends_its_ranges():
    fn = pyframe.compile(lambda x, i: (x + 1)[i] * 2)
    x, bad = torch.randn(4), torch.tensor([7])
    fn(x, torch.tensor([1]))

    def call():
        with pytest.raises(IndexError):
            fn(x, bad)
        torch.ones(2).sinh()

    assert profiled(call)["aten::sinh"] is None


def test_several_threads_call_one_graph_while_it_is_profiled():
    fn, x = pyframe.compile(program), torch.randn(4, 4)
    expected, results = program(x, x), []
    fn(x, x)

    def call():
        threads = [threading.Thread(target=lambda: results.append(fn(x, x))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    profiled(call)
    torch.testing.assert_close(results, [expected] * 8)


@pytest.mark.skipif(_C is None, reason="the extension is not built")
@pytest.mark.parametrize("names, error", [((), ValueError), (("graph", "step"), ValueError), (["graph"], ValueError), ((1,), TypeError)])
def test_labels_that_are_refused(names, error):
    plan = make_plan(PlanSpec((), (), (), ()), [])
    with pytest.raises(error):
        plan.label(names)
    plan.label(("graph",))
    with pytest.raises(ValueError):
        plan.label(("again",))
