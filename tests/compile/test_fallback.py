"""Whatever the compiler raises: one warning with the reason, and the graph runs with ATen operators."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from util import line_of

import inductor.assembly
import inductor.build
import inductor.compile
import inductor.generate
import pyframe
from inductor.errors import InternalCompileError
from inductor.lower import registry
from pyframe.metrics import counters


class Defect(Exception):
    """An exception that no code of the compiler raises."""


def broken(*args, **kwargs):
    raise Defect("a defect")


def wave(x):
    y = x + 1
    return torch.cumsum(y, 0) * 2  # the operator


MODULES = {"build_all": inductor.assembly, "make_plan": inductor.build, "graph_key": inductor.compile, "wrap": inductor.compile}
STAGES = ["to_aten", "run_passes", "lower_graph", "schedule", "codegen", "build_all", "make_plan", "graph_key"]
TRAINING = ["to_joint", "partition", "describe", "lower_graph", "wrap"]


@pytest.fixture
def users(monkeypatch):
    """As a user runs the compiler: its defects are no errors."""
    monkeypatch.delenv("PYFRAME_STRICT", raising=False)
    monkeypatch.setenv("PYFRAME_CACHE_DIR", "")


def run(fn, *args, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = pyframe.compile(fn, options=options or None)(*args)
    return result, [str(w.message) for w in caught if "not compiled" in str(w.message)]


@pytest.mark.parametrize("stage", STAGES)
def test_a_defect_at_any_stage_is_one_warning(stage, users, monkeypatch):
    monkeypatch.setattr(MODULES.get(stage, inductor.generate), stage, broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    x = torch.randn(7)
    result, messages = run(wave, x)
    torch.testing.assert_close(result, wave(x))
    assert len(messages) == 1 and "the graph of wave" in messages[0] and "Defect: a defect" in messages[0], messages
    assert f"{__file__}:{line_of(__file__, 'the operator') - 1}" in messages[0] and counters["fallbacks"] == 1


@pytest.mark.parametrize("stage", TRAINING)
def test_a_defect_in_training_is_one_warning(stage, users, monkeypatch):
    monkeypatch.setattr(MODULES.get(stage, inductor.generate), stage, broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    x = torch.randn(7, requires_grad=True)
    result, messages = run(wave, x)
    result.sum().backward()
    (expected,) = torch.autograd.grad(wave(x).sum(), x)
    torch.testing.assert_close(x.grad, expected)
    assert len(messages) == 1 and "Defect: a defect" in messages[0]


def test_the_operator_and_its_line_are_named(users, monkeypatch):
    find = registry.find
    lowered = sys.modules["inductor.lower.graph"]
    cumsum = torch.ops.aten.cumsum.default
    monkeypatch.setattr(lowered, "find", lambda target: broken if target is cumsum else find(target))
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    _, messages = run(wave, torch.randn(9))
    assert f"operator aten.cumsum.default, {__file__}:{line_of(__file__, 'the operator')}: return torch.cumsum" in messages[0]


def test_a_defect_when_a_size_is_compiled_late(users, monkeypatch):
    compiled = pyframe.compile(wave, dynamic=True)
    compiled(torch.randn(5))
    monkeypatch.setattr(inductor.generate, "lower_graph", broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    monkeypatch.setattr("inductor.dynamic.template.Template.serves", lambda self, values: False)
    x = torch.randn(8)
    with pytest.warns(UserWarning, match="Defect"):
        result = compiled(x)
    torch.testing.assert_close(result, wave(x))
    torch.testing.assert_close(compiled(x), wave(x))


def in_pieces(x):
    n = int(x.sum().item())
    return torch.cumsum(x, 0) + n


def test_a_defect_in_a_piece(users, monkeypatch):
    monkeypatch.setattr(inductor.generate, "lower_graph", broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    x = torch.ones(5)
    result, messages = run(in_pieces, x)
    torch.testing.assert_close(result, in_pieces(x))
    assert messages


def test_explain_reports_it(users, monkeypatch):
    monkeypatch.setattr(inductor.generate, "schedule", broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = str(pyframe.explain(wave)(torch.randn(5)))
    assert "not compiled: Defect: a defect" in text


def test_strict_makes_it_an_error(users, monkeypatch):
    monkeypatch.setattr(inductor.generate, "schedule", broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    with pytest.raises(pyframe.errors.BackendCompilerFailed, match="Defect: a defect"):
        run(wave, torch.randn(6), strict=True)


def test_the_projects_own_tests_see_defects(monkeypatch):
    monkeypatch.setattr(inductor.generate, "schedule", broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    with pytest.raises(pyframe.errors.BackendCompilerFailed) as raised:
        run(wave, torch.randn(6))
    assert isinstance(raised.value.inner_exception, InternalCompileError)


def test_no_memory_is_no_fallback(users, monkeypatch):
    def full(*args):
        raise MemoryError

    monkeypatch.setattr(inductor.generate, "schedule", full)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    with pytest.raises(MemoryError):
        inductor.compile_fx(torch.fx.symbolic_trace(wave), [torch.randn(4)])


def test_as_a_backend_of_torch_compile(users, monkeypatch):
    monkeypatch.setattr(inductor.generate, "schedule", broken)
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    x = torch.randn(6)
    with pytest.warns(UserWarning, match="the graph of wave .*Defect: a defect"):
        result = torch.compile(wave, backend=inductor.compile_fx)(x)
    torch.testing.assert_close(result, wave(x))
