"""What explain says, and the backends by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pyframe


class Branching(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


def test_a_break_in_a_module_is_reported_once():
    report = pyframe.explain(Branching())(torch.ones(3))
    assert [b.kind for b in report.breaks] == ["data-dependent-branch"]
    assert report.breaks[0].stack[-1].function == "forward"
    text = str(report)
    assert "if x.sum() > 0:" in text and "hint:" in text and __file__ in text
    torch.testing.assert_close(report.result, torch.full((3,), 2.0))


def test_explain_can_be_called_again_with_its_settings():
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    explained = pyframe.explain(lambda x: x.sin() + 1, backend=backend)
    explained(torch.ones(2))
    explained(torch.ones(2))
    assert len(seen) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_mutation_and_identity_of_outputs(backend):
    def fn(x):
        x.add_(1)
        return x, x.sin().sum(), x.view(-1)

    x = torch.zeros(3)
    compiled = pyframe.compile(fn, backend=backend)
    for turn in (1.0, 2.0):
        out = compiled(x)
        assert out[0] is x
        torch.testing.assert_close(x, torch.full((3,), turn))
        assert out[2].data_ptr() == x.data_ptr()


def test_aot_eager_leaves_gradients_right():
    x = torch.ones(3, requires_grad=True)
    pyframe.compile(lambda t: (t * t).sum(), backend="aot_eager")(x).backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


def test_recompiles_count_captures_only():
    pyframe.reset()
    fn = pyframe.compile(lambda x, n: x * n, backend="eager", options={"recompile_limit": 2})
    with pytest.warns(UserWarning, match="recompile limit"):
        for n in range(5):
            fn(torch.ones(1), n)
    assert pyframe.counters["recompiles"] == 1 and pyframe.counters["graphs"] == 2


def test_what_is_compiled_at_the_first_call_is_counted() -> None:
    """Pieces of a cut graph, and graphs of many sizes."""

    def pieces(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            y = (x * 2.25).cos()
        return y.clone() - 1

    pyframe.reset()
    fn = pyframe.compile(pieces)
    assert torch.equal(fn(torch.ones(3)), pieces(torch.ones(3)))
    assert pyframe.counters["graphs"] == 1 and pyframe.counters["kernels"] == 2
    assert pyframe.counters["cache_hits"] + pyframe.counters["cache_misses"] == 2
    pyframe.reset()
    sizes = pyframe.compile(lambda x: (x * 3.25).cos(), dynamic=True)
    for n in (3, 4, 5):
        sizes(torch.ones(n))
    assert pyframe.counters["graphs"] == pyframe.counters["kernels"] == pyframe.counters["cache_hits"] + pyframe.counters["cache_misses"] == 1
    explained = pyframe.explain(pieces)(torch.ones(3))
    assert explained.seconds["backend"] >= 0.0


def test_explain_is_short_and_names_what_breaks_cost():
    def f(x):
        print("once")
        x = x.sin()
        print("twice")
        return x.cos()

    report = pyframe.explain(f)(torch.ones(3))
    text = str(report)
    assert text.count("why: ") == 1 and text.count("[builtin-side-effect]") == 2
    assert text.index("break 0") < text.index("graph 0") and "ms to capture what follows" in text
    assert all(report.cost_of(brk) > 0 for brk in report.breaks)
    assert "guards:" not in text and "guards:" in report.text(guards=True)
    assert "CLASS_FINDS" not in text and "CLASS_FINDS" in report.text(guards=True)


def test_what_follows_a_break_in_a_loop_is_its_cost():
    def f(x):
        for _ in range(2):
            x = x.sin()
            print("in a loop")
        return x.cos()

    report = pyframe.explain(f, backend="eager")(torch.ones(3))
    assert report.cost_of(report.breaks[0]) > 0


def test_equal_graphs_and_guards_are_said_once():
    report = pyframe.explain(Branching(), backend="eager")(torch.ones(3))
    report.graphs = report.graphs[:1] * 3
    report.guards = report.guards[:1] * 3
    assert "graphs 0 to 2, each: " in str(report) and "(3 times)" in report.text(guards=True)
