"""Graph breaks inside calls that are traced inline: the frames are suspended there, and the part before the break stays
in the caller's graph."""

from __future__ import annotations

import contextlib
import io
import traceback
import types
import warnings
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import pyframe
from pyframe import _C
from pyframe.metrics import counters
from pyframe.testing import CompileCounter
from pyframe.vars.torch_objects.contexts import LateEntry
from tests.interp.inner_break_programs import LOG, PROGRAMS, cosine, pause

NAMES = ("f", "g", "h", "fails", "<lambda>")


def functions_of(error: BaseException) -> list[str]:
    """The program's functions in a traceback. A function that continues in a resume function is listed once."""
    lines = traceback.extract_tb(error.__traceback__)
    names = [line.name.split("__resume")[0] for line in lines if "inner_break_programs" in line.filename]
    return [name for i, name in enumerate(names) if name in NAMES and (i == 0 or names[i - 1] != name)]


def behaviour(fn: Any) -> list[Any]:
    """What three calls do: results, gradients, exceptions, output, warnings, and what is logged."""
    LOG.clear()
    seen: list[Any] = []
    for sign in (1, 1, -1):
        x = (sign * torch.tensor([0.3, -1.2, 0.7, 2.0])).requires_grad_()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = fn(x)
            except ValueError as error:
                result = (str(error), functions_of(error))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        grad = torch.autograd.grad([t.sum() for t in tensors], x)[0] if tensors else None
        seen.append((result, grad, printed.getvalue(), [(str(w.message), w.lineno) for w in warned], str(LOG)))
    return seen


def assert_same(found: Any, wanted: Any) -> None:
    for a, b in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert a.requires_grad == b.requires_grad
        else:
            assert a == b


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, backend: str) -> None:
    wanted = behaviour(PROGRAMS[name]())
    assert_same(behaviour(pyframe.compile(PROGRAMS[name](), backend=backend)), wanted)


def graphs_of(fn: Any, *args: Any) -> list[list[str]]:
    """The operators of each graph, in the order of captures."""
    found: list[list[str]] = []

    def backend(gm: Any, inputs: Any) -> Any:
        found.append([node.name for node in gm.graph.nodes if node.op.startswith("call")])
        return gm

    compiled = pyframe.compile(fn, backend=backend)
    assert_same(compiled(*args), fn(*args))
    compiled(*args)
    return found


X = torch.tensor([0.3, -1.2])


def test_the_part_before_the_break_is_in_the_callers_graph():
    def g(x):
        return cosine(x.sin()).exp()

    assert graphs_of(lambda x: g(x * 2) + x, X) == [["mul", "sin", "cos"], ["mul"], ["exp"], ["add"]]


def test_break_at_a_call_in_the_middle():
    def g(x):
        y = x.sin()
        pause()
        return y + 1

    def f(x):
        a = x * 2
        b = a.exp()
        return g(a) + b

    assert graphs_of(f, X) == [["mul", "exp", "sin"], ["add"], ["add"]]


def test_calls_in_loops_break_at_the_loop():
    def g(x):
        x = x.tan()
        for _ in range(2):
            x = cosine(x.sin())
        return x.exp()

    assert graphs_of(lambda x: g(x * 2) + 1, X) == [["mul", "tan"], ["sin", "cos"], ["mul"], ["exp"], ["add"]]


def test_break_in_a_loop_of_the_innermost_frame():
    def h(x):
        x = x.sin()
        for k in range(3):
            x = x.cos()
            pause(k)
        return x.tan()

    assert graphs_of(lambda x: h(x * 2) + 1, X) == [["mul", "sin"], ["cos"], ["tan"], ["add"]]


def test_break_in_a_mode():
    def h(x):
        with torch.no_grad():
            y = x.cos()
            pause()
            return y * 2

    def g(x):
        with torch.no_grad():
            return h(x.sin()) + 1

    graphs = graphs_of(lambda x: g(x * 2).exp(), X)
    operators = [[name for name in names if not name.startswith("_set_grad_enabled")] for names in graphs]
    assert operators == [["mul", "sin", "cos"], ["mul"], ["add"], ["exp"]]


def test_break_in_a_handler():
    def h(x):
        x = x.sin()
        try:
            {}["q"]  # noqa: B018
        except KeyError:
            y = x.cos()
            pause()
            return y * 2

    assert graphs_of(lambda x: h(x * 2) + 1, X) == [["mul", "sin"], ["cos"], ["mul"], ["add"]]


def never_called() -> None:
    raise AssertionError


def test_modes_of_a_frame_that_cannot_start():
    suspended = _C.SuspendedFrame(never_called, [torch.no_grad(), torch.autocast("cpu")], None, LateEntry(0, 1))
    with pytest.raises(TypeError, match="takes 0 positional arguments"):
        suspended()
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_modes_of_which_one_cannot_be_entered():
    suspended = _C.SuspendedFrame(never_called, [torch.no_grad(), 3], None, LateEntry(0, 1))
    with pytest.raises(AttributeError):
        suspended()
    assert torch.is_grad_enabled()


def test_a_switch_of_grad_mode_that_is_over_stays_over():
    def f(x):
        switch = torch.set_grad_enabled(False)
        with switch:
            y = x.sin()
        pause()
        return y, torch.is_grad_enabled(), switch.mode

    assert pyframe.compile(f, backend="eager")(X)[1:] == (True, False) == f(X)[1:]


def test_one_break_is_counted_and_shown():
    def g(x):
        return cosine(x.sin())

    explained = pyframe.explain(lambda x: g(x * 2) + x)(X)
    assert explained.graph_break_count == 1
    assert str(explained).count("print() was called") == 1


def test_frames_are_captured_once():
    counter = CompileCounter()

    def g(x):
        return cosine(x.sin()).exp()

    compiled = pyframe.compile(lambda x: g(x * 2) + x, backend=counter)
    for _ in range(4):
        compiled(X)
    assert counter.frame_count == 4


def test_functions_of_equal_code_with_other_globals():
    code = compile("def h(x):\n    y = x.cos()\n    pause()\n    return y * K\n", "h.py", "exec").co_consts[0]
    held: dict[str, Any] = {}

    def f(x):
        return held["h"](x * 2)

    compiled = pyframe.compile(f, backend="eager")
    for k in (2, 3, 2):
        held["h"] = types.FunctionType(code, {"pause": pause, "K": k, "__builtins__": __builtins__})
        torch.testing.assert_close(compiled(X), (X * 2).cos() * k)


def test_sizes_that_vary_stay_symbols():
    counter = CompileCounter()

    def g(x):
        return cosine(x.sin()).exp()

    compiled = pyframe.compile(lambda x: g(x * 2) + x.shape[0], backend=counter)
    for n in (3, 5, 6, 7, 8):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), ((x * 2).sin().cos() * 2).exp() + n)
    assert counter.frame_count <= 8


def test_fullgraph_raises():
    def g(x):
        return cosine(x.sin())

    with pytest.raises(pyframe.Unsupported, match="print"):
        pyframe.compile(lambda x: g(x), backend="eager", fullgraph=True)(X)


def test_what_comes_before_a_break_is_traced_once():
    def g(x, breaks):
        y = x.sin()
        for _ in range(20):
            y = y.cos() + 1
        if breaks:
            pause()
        return y * 2

    def f(x, breaks):
        return g(x + 1, breaks) + 1

    spent = []
    for breaks in (False, True):
        before = counters["instructions_traced"]
        torch.testing.assert_close(pyframe.compile(f, backend="eager")(X, breaks), f(X, breaks))
        spent.append(counters["instructions_traced"] - before)
    assert spent[1] < spent[0] + 60
