"""Redirected output, recorded warnings and assignments to variables of modules do not break the graph."""

from __future__ import annotations

import contextlib
import io
import sys
import types
import warnings

import pytest
import torch

import pyframe
from pyframe.metrics import counters

MODULE = types.ModuleType("settings")
MODULE.factor = 1
exec("def scaled(x):\n    return x * factor", vars(MODULE))


def nothing_printed(x):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(sys.stdout):
        y = x + 1
    return y, sys.stdout is sys.__stdout__


def printed(x):
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        print("shape", tuple(x.shape), 2.5, sep="-", end=".")
        sys.stdout.write("written")
    print("direct", file=stream, flush=True)
    return x + 1, stream.getvalue()


def printed_before_an_exception(x):
    stream = io.StringIO()
    with contextlib.suppress(ValueError), contextlib.redirect_stdout(stream):
        print("before")
        raise ValueError
    return x + len(stream.getvalue())


def module_variable(x):
    before, MODULE.factor = MODULE.factor, 5
    y = MODULE.scaled(x)
    MODULE.factor = before
    return y, MODULE.factor


def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("first")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("ignored")
        warnings.warn("second", RuntimeWarning)
    first, second = seen
    return x + len(seen), str(first.message), first.category, second.category, second.lineno


def nothing_recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        y = x + 1
    return y, seen


def raised(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning)
        try:
            warnings.warn("text", RuntimeWarning)
        except RuntimeWarning as warning:
            return x + 1, str(warning)
    return x


ONE_GRAPH = (
    nothing_printed, printed, printed_before_an_exception, module_variable, recorded, nothing_recorded, raised,
)  # fmt: skip


def tensor_printed(x):
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        print("one")
        print(x + 1)
        print("two")
    return x * 2, stream.getvalue()


def printed_after_the_block(x):
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        y = x + 1
        print("inside")
    print("outside")
    return y, stream.getvalue()


def operator_warns(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("first")
        y = torch.nn.functional.mse_loss(x, x[:1])
    return y, [type(each.message) for each in seen]


def warns_if(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if x.sum() > 2:
            warnings.warn("large")
        y = x * 5
    return y, [str(each.message) for each in seen]


def raises_if(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            if x.sum() > 2:
                warnings.warn("large")
            return x + 1
        except UserWarning:
            return x * 5


def agree(fn):
    compiled = pyframe.compile(fn, backend="eager")
    for value in (1.0, 0.0):
        outputs = []
        for called in (fn, compiled):
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                before = sys.stdout
                sys.stdout = sys.__stdout__ if fn is nothing_printed else stream
                outputs.append((repr(called(torch.full((3,), value))), stream.getvalue()))
                sys.stdout = before
        assert outputs[0] == outputs[1]


@pytest.mark.parametrize("fn", ONE_GRAPH)
def test_one_graph(fn):
    if fn is recorded and hasattr(warnings, "_get_context"):
        pytest.skip("this CPython keeps recorded warnings in a context")
    agree(fn)
    assert not counters["graph_breaks"]


RIGHT = (tensor_printed, printed_after_the_block, operator_warns, warns_if, raises_if)


@pytest.mark.parametrize("fn", RIGHT)
def test_right(fn):
    agree(fn)


def test_a_warning_that_the_program_does_not_handle():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.warn("text")
        return x + 1

    with pytest.raises(UserWarning, match="text"):
        pyframe.compile(fn, backend="eager")(torch.ones(3))


def test_variables_of_builtins_are_not_written_in_the_graph():
    import builtins

    def fn(x):
        builtins.len = lambda _: 7
        try:
            return x + len([])
        finally:
            del builtins.len
            builtins.len = original

    original = len
    assert pyframe.compile(fn, backend="eager")(torch.zeros(1)).item() == 7
