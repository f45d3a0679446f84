"""What breaks, guards and errors say: the user's lines, never those of pyframe, and what was expected and found."""

from __future__ import annotations

import functools
import logging
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from inductor.process.compile_lock import without_lock
from pyframe.core import guard_explain
from pyframe.core.guard import Guard
from pyframe.core.source import LocalSource

HERE = __file__


def lineno(marker: str) -> int:
    with open(HERE) as source:
        return next(i for i, line in enumerate(source, 1) if line.rstrip().endswith(f"# {marker}"))


def where(stack):
    return [(line.filename, line.lineno, line.function) for line in stack]


def reads(x):
    pyframe.graph_break()  # reads
    return x * 2


def twice(x):
    return reads(x) + 1  # twice


def test_a_break_lists_the_whole_stack_of_the_user():
    def calls(x):
        return twice(x * 2)  # calls

    explanation = pyframe.explain(calls, backend="eager")(torch.ones(2))
    expected = [(HERE, lineno("calls"), "calls"), (HERE, lineno("twice"), "twice"), (HERE, lineno("reads"), "reads")]
    assert where(explanation.breaks[0].stack) == expected
    text = str(explanation)
    assert text.index("# reads") < text.index("# twice") < text.index("# calls")
    with pytest.raises(pyframe.Unsupported) as raised:
        pyframe.compile(calls, backend="eager", fullgraph=True)(torch.ones(2))
    assert all(f"{HERE}:{line}" in str(raised.value) for _, line, _ in expected)


def test_our_versions_of_c_functions_are_not_the_users_code():
    def folds(x):
        return functools.reduce(lambda a, b: reads(a) + b, [x, x])  # folds

    explanation = pyframe.explain(folds, backend="eager")(torch.ones(2))
    first = explanation.breaks[0].stack
    assert where(first) == [
        (HERE, lineno("folds"), "folds"),
        (HERE, lineno("folds"), "<lambda>"),
        (HERE, lineno("reads"), "reads"),
    ]
    assert "polyfills" not in str(explanation)


def test_a_break_inside_torch_is_reported_at_the_users_line():
    def makes(x):
        try:
            return torch.nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True) + x  # makes
        except RuntimeError:  # as it is handled, the check of the norm is no part of the graph
            return x

    x = torch.ones(2)
    x.grad = torch.ones(2)
    with pytest.raises(pyframe.Unsupported) as raised:
        pyframe.compile(makes, backend="eager", fullgraph=True)(x)
    first, place = str(raised.value).splitlines()[:2]
    assert first.startswith("[") and "(torch/" in first  # where in torch, next to what
    assert place.strip().startswith(f"at {HERE}:{lineno('makes')} in makes: `return torch.nn.utils.clip_grad_norm_([x]")
    assert "called from" not in str(raised.value)


def test_modules_of_torch_round_a_users_module_are_left_out():
    class Inner(nn.Module):
        def forward(self, x):
            return reads(x)  # forward

    model = nn.Sequential(nn.Tanh(), Inner())
    explanation = pyframe.explain(model, backend="eager")(torch.ones(2))
    assert where(explanation.breaks[0].stack) == [(HERE, lineno("forward"), "forward"), (HERE, lineno("reads"), "reads")]


class Settings:
    scale = 2


class Others:
    scale = 3


def first_function(x):
    return x + 1


def second_function(x):
    return x + 2


def takes(x, value):
    if callable(value):
        return value(x)
    return x * getattr(value, "scale", value)


@pytest.mark.parametrize(
    "first, second, expected",
    [
        (2, "twice", "value: expected 2 (int), got 'twice' (str)"),
        (Settings(), Others(), "type(value): expected {0}.Settings, got {0}.Others"),
        (first_function, second_function, "value.__code__: expected code first_function at"),
        (first_function, second_function, "got code second_function at"),
    ],
)
def test_a_recompile_names_the_guard_both_values_and_the_line(first, second, expected, capfd):
    compiled = pyframe.compile(takes, backend="eager")
    pyframe.set_logs("recompiles")
    try:
        for value in (first, second):
            try:
                compiled(torch.ones(2), value)
            except TypeError:  # a tensor times a str
                pass
    finally:
        pyframe.set_logs()
    line = capfd.readouterr().err
    assert line.startswith(f"[recompiles] takes ({HERE}:{takes.__code__.co_firstlineno}): ")
    assert expected.format(__name__) in line
    assert f"guard from {HERE}:" in line


@pytest.mark.parametrize("kind, words", [("TYPE", "a class that no longer exists"), ("ID", "an object that no longer exists")])
def test_a_guard_on_what_is_gone_says_so(kind, words):
    guard = Guard(LocalSource("value", 1), kind, guard_explain.GONE, None)
    assert f"expected {words}, got " in guard_explain.explain(guard, takes, (torch.ones(2), Settings()))


def test_errors_of_backends_and_limits_name_the_function():
    place = f"takes ({HERE}:{takes.__code__.co_firstlineno})"

    def fails(gm, example_inputs):
        raise KeyError("no such thing")

    for backend in (fails, lambda gm, example_inputs: 3):
        with pytest.raises(pyframe.BackendCompilerFailed) as failed:
            pyframe.compile(takes, backend=backend)(torch.ones(2), 2)
        assert place in str(failed.value)
    limited = {"backend": "eager", "options": {"recompile_limit": 1}}
    compiled = pyframe.compile(takes, fullgraph=True, **limited)
    compiled(torch.ones(2), "a".__len__())
    with pytest.raises(pyframe.RecompileLimitExceeded) as exceeded:
        compiled(torch.ones(3, dtype=torch.float64), 1)
    assert place in str(exceeded.value) and "x.dtype: expected torch.float32, got torch.float64" in str(exceeded.value)
    compiled = pyframe.compile(takes, **limited)
    compiled(torch.ones(2), 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(torch.ones(3, dtype=torch.float64), 1)
    assert len(caught) == 1 and place in str(caught[0].message)


def test_a_compiled_module_is_named_by_its_class(capfd):
    class Model(nn.Module):
        def forward(self, x):
            return x + 1 if self.training else x

    model = pyframe.compile(Model(), backend="eager")
    model(torch.ones(2))
    pyframe.set_logs("recompiles")
    try:
        model.eval()(torch.ones(2))
    finally:
        pyframe.set_logs()
    line = capfd.readouterr().err
    assert "Model: " in line and "training" in line and f"guard from {HERE}:" in line and "run_module" not in line


def test_errors_of_fake_tensors_are_not_logged() -> None:
    """Where an operator fails while tracing, the program raises for real; nothing else is printed."""
    log, records = logging.getLogger("torch._subclasses.fake_tensor"), []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        with pytest.raises(RuntimeError):
            pyframe.compile(torch.mm, backend="eager")(torch.ones(2, 3), torch.ones(2, 3))
        with pytest.raises(RuntimeError):
            pyframe.compile(lambda x: x @ x, backend="eager")(torch.ones(2, 3))
        assert not records
        log.error("outside of a capture")
        assert len(records) == 1
    finally:
        log.removeHandler(handler)


def filters_of_torch() -> dict[str, list[Any]]:
    """The filters of torch's loggers, by name."""
    known = list(logging.Logger.manager.loggerDict.items())
    return {
        name: list(logger.filters) for name, logger in known if name.startswith("torch") and hasattr(logger, "filters")
    }


def added(before: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The filters of torch's loggers that have changed."""
    return {name: filters for name, filters in filters_of_torch().items() if filters != before.get(name, [])}


def test_captures_leave_the_filters_of_torchs_loggers() -> None:
    before, during = filters_of_torch(), []

    def nested(graph: Any, inputs: Any) -> Any:
        pyframe.compile(lambda x: x - 1, backend="eager")(torch.ones(2))
        during.append(added(before))
        return graph

    def defective(graph: Any, inputs: Any) -> Any:
        during.append(added(before))
        raise ValueError("a defect")

    pyframe.compile(lambda x: x + 1, backend=nested)(torch.ones(2))
    assert not added(before)
    with pytest.raises(pyframe.BackendCompilerFailed):
        pyframe.compile(lambda x: x + 1, backend=defective)(torch.ones(2))
    assert not added(before)
    with pytest.raises(RuntimeError):
        pyframe.compile(torch.mm, backend="eager")(torch.ones(2, 3), torch.ones(2, 3))
    assert not added(before)
    assert [list(each) for each in during] == [["torch._subclasses.fake_tensor"]] * 2


def test_a_capture_that_ends_leaves_the_filter_to_that_of_another_thread() -> None:
    before, began, other_ended, during = filters_of_torch(), threading.Event(), threading.Event(), []

    def waiting(graph: Any, inputs: Any) -> Any:
        began.set()
        assert without_lock(lambda: other_ended.wait(30))
        during.append(list(added(before)))
        return graph

    thread = threading.Thread(target=lambda: pyframe.compile(lambda x: x + 1, backend=waiting)(torch.ones(2)))
    thread.start()
    assert began.wait(30)
    pyframe.compile(lambda x: x - 1, backend="eager")(torch.ones(2))
    other_ended.set()
    thread.join()
    assert during == [["torch._subclasses.fake_tensor"]] and not added(before)


def test_the_instructions_of_all_frames_of_a_capture_are_counted() -> None:
    def inner(x):
        return x + 1

    def f(x):
        return inner(inner(x))

    def traced(run, *args):
        before = pyframe.counters["instructions_traced"]
        run(*args)
        return pyframe.counters["instructions_traced"] - before

    run = pyframe.compile(f, backend="eager", dynamic=False)
    alone = traced(pyframe.compile(inner, backend="eager"), torch.ones(2))
    first = traced(run, torch.ones(2))
    assert 0 < 2 * alone < first
    assert traced(run, torch.ones(2)) == 0
    assert traced(run, torch.ones(3)) == first


def test_counters_may_be_cleared() -> None:
    pyframe.counters.clear()
    pyframe.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert pyframe.counters["graphs"] == 1


def warned_at(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [(w.filename, w.lineno) for w in found if "pyframe: " in str(w.message) or "inductor: " in str(w.message)]


def test_warnings_point_at_the_users_line_and_name_the_function():
    def wide(x, n):
        return x * n

    compiled = pyframe.compile(wide, backend="eager", dynamic=False, recompile_limit=1)
    compiled(torch.ones(2), 3)

    def call():
        return compiled(torch.ones(2), 4)  # limited

    assert warned_at(call) == [(HERE, lineno("limited"))]


def test_a_module_that_is_not_compiled_warns_at_the_users_line(monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    monkeypatch.delenv("PYFRAME_STRICT", raising=False)
    monkeypatch.setattr("inductor.log.warnings.shown", set())
    model = pyframe.compile(nn.Sequential(nn.Linear(3, 5), nn.Softmax(-1)), options={"cache": False})

    def call():
        return model(torch.ones(7, 3))  # uncompiled

    assert warned_at(call) == [(HERE, lineno("uncompiled"))]


def test_advice_on_torchs_own_tools_is_left_out():
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    from inductor.fx_utils.places import reason_of

    error = GuardOnDataDependentSymNode("u0 > 1", "cannot decide\n\nFor more information, run with TORCH_LOGS=dynamic")
    assert reason_of(error) == "GuardOnDataDependentSymNode: cannot decide"
