"""The names that users of torch.compile look for: what they do, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pyframe
from pyframe import testing

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture
def graphs():
    return testing.EagerAndRecordGraphs()


def targets(graphs):
    return [node.target for gm in graphs.graphs for node in gm.graph.nodes if node.op == "call_function"]


# ---- functions put into the graph, or kept out ----
def opaque(x, n):
    if x.sum() > 0:  # a break if it were traced
        return x * n
    return x


def test_allow_in_graph(graphs):
    def whole(x, n):
        return x * float(len(str(n)))

    assert pyframe.allow_in_graph(whole) is whole
    fn = pyframe.compile(lambda x: whole(x + 1, 10).sin(), backend=graphs, fullgraph=True)
    torch.testing.assert_close(fn(X), ((X + 1) * 2).sin())
    assert whole in targets(graphs)
    assert pyframe.allow_in_graph([whole, opaque]) == [whole, opaque]
    pyframe.disallow_in_graph(opaque)
    with pytest.raises(pyframe.UserError, match="needs a callable"):
        pyframe.allow_in_graph(3)


def test_disallow_in_graph(graphs):
    pyframe.reset()
    try:
        assert pyframe.disallow_in_graph(torch.sinc) is torch.sinc
        fn = pyframe.compile(lambda x: torch.sinc(x + 1) + 1, backend=graphs)
        torch.testing.assert_close(fn(X), torch.sinc(X + 1) + 1)
        assert len(graphs.graphs) == 2 and torch.sinc not in targets(graphs)
        assert pyframe.counters["graph_breaks"]["disallowed-function"] == 1
    finally:
        pyframe.allow_in_graph(torch.sinc)
    pyframe.compile(lambda x: torch.sinc(x) + 1, backend=graphs, fullgraph=True)(X)
    with pytest.raises(pyframe.UserError, match="would be put into a graph"):
        pyframe.disallow_in_graph(lambda x: x)


def test_disable_alone_captures_what_it_calls(graphs):
    def inner(x):
        return x.cos() + 1

    @pyframe.disable(recursive=False)
    def outer(x):
        return inner(x) - 1

    def caller(x):
        return outer(x * 2) + 3

    fn = pyframe.compile(caller, backend=graphs)
    for _ in range(2):
        torch.testing.assert_close(fn(X), caller(X))
    assert len(graphs.graphs) == 3  # before, the callee, after
    all_off = pyframe.compile(pyframe.disable(caller, recursive=False), backend=graphs)
    torch.testing.assert_close(all_off(X), caller(X))


def test_disable_recursive_captures_nothing(graphs):
    def inner(x):
        return x.cos() + 1

    @pyframe.disable
    def outer(x):
        return inner(x) - 1

    fn = pyframe.compile(lambda x: outer(x * 2) + 3, backend=graphs)
    torch.testing.assert_close(fn(X), (X * 2).cos() + 3)
    assert len(graphs.graphs) == 2


def test_disable_a_module(graphs):
    net = nn.Linear(3, 2)
    off = pyframe.disable(net)
    assert isinstance(off, nn.Linear) and off.weight is net.weight
    model = pyframe.compile(nn.Sequential(nn.Tanh(), off, nn.ReLU()), backend=graphs)
    torch.testing.assert_close(model(X), net(X.tanh()).relu())
    assert torch._C._nn.linear not in targets(graphs)


def test_marks_of_torch_compiler_are_honoured(graphs):
    def inner(x):
        return x.cos()

    off = torch.compiler.disable(lambda x: inner(x) + 1)
    fn = pyframe.compile(lambda x: off(x + 1) * 2, backend=graphs)
    torch.testing.assert_close(fn(X), ((X + 1).cos() + 1) * 2)
    assert len(graphs.graphs) == 2


# ---- results and replacements ----
def test_assume_constant_result(graphs):
    calls = []

    @pyframe.assume_constant_result
    def setting(name, table):
        calls.append(name)
        return table[name], torch.full((3,), 2.0)

    table = {"scale": 3}

    def program(x, table):
        scale, row = setting("scale", table)
        return x * scale + row

    fn = pyframe.compile(program, backend=graphs, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(fn(X, table), X * 3 + 2)
    assert calls == ["scale"]


def test_assume_constant_result_of_a_method(graphs):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.width = 4

        @pyframe.assume_constant_result
        def size(self):
            return self.width + len(str(id(self))[:1])

        def forward(self, x):
            return x * self.size()

    model = pyframe.compile(Model(), backend=graphs, fullgraph=True)
    torch.testing.assert_close(model(X), X * 5)


def test_substitute_in_graph(graphs):
    import _heapq

    @pyframe.substitute_in_graph(_heapq._heapreplace_max, skip_signature_check=True)
    def heapreplace_max(heap, item):
        item, heap[0] = heap[0], item
        return item

    def program(x):
        heap = [1]
        return x * _heapq._heapreplace_max(heap, 5), heap

    fn = pyframe.compile(program, backend=graphs, fullgraph=True)
    result, heap = fn(X)
    torch.testing.assert_close(result, X)
    assert heap == [5]
    assert heapreplace_max([1, 2], 3) == 1
    with pytest.raises(pyframe.UserError, match="already has a model"):
        pyframe.substitute_in_graph(_heapq._heapreplace_max, skip_signature_check=True)(lambda heap, item: item)


def test_substitute_compares_signatures():
    def original(a, b=1):
        return a

    with pytest.raises(pyframe.UserError, match="takes"):
        pyframe.substitute_in_graph(original)(lambda a, c=1: a)
    with pytest.raises(pyframe.UserError, match="functions and classes"):
        pyframe.substitute_in_graph(3)


# ---- stances ----
def test_force_eager_as_function_context_and_decorator():
    counter = testing.CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter)
    with pyframe.set_stance("force_eager"):
        fn(X)
    assert counter.frame_count == 0

    @pyframe.set_stance("force_eager")
    def evaluate():
        return fn(X)

    evaluate()
    assert counter.frame_count == 0
    fn(X)
    assert counter.frame_count == 1
    pyframe.set_stance("force_eager")
    try:
        fn(torch.ones(7))
        assert counter.frame_count == 1
    finally:
        pyframe.set_stance("default")
    fn(torch.ones(7, dtype=torch.int64))
    assert counter.frame_count == 2


def test_stances_about_recompiling():
    counter = testing.CompileCounter()

    def program(x, n):
        return x + n

    fn = pyframe.compile(program, backend=counter)
    fn(X, 1)
    with pyframe.set_stance("eager_on_recompile"):
        torch.testing.assert_close(fn(X, 2), X + 2)
        torch.testing.assert_close(fn(X, 1), X + 1)
    with pyframe.set_stance("fail_on_recompile"):
        fn(X, 1)
        with pytest.raises(pyframe.exc.RecompileError, match=r"program .*fail_on_recompile") as raised:
            fn(X, "2")
        assert isinstance(raised.value, RuntimeError)
    assert counter.frame_count == 1
    fn(X, 2)
    assert counter.frame_count == 2


def shifted_sine(x):
    return x.sin() + 1


def test_eager_then_compile_captures_nothing_of_a_first_call():
    counter = testing.CompileCounter()

    def program(x):
        y = shifted_sine(x)
        pyframe.graph_break()
        return shifted_sine(y) * 2

    fn = pyframe.compile(program, backend=counter)
    with pyframe.set_stance("eager_then_compile"):
        torch.testing.assert_close(fn(X), program(X))
        assert counter.frame_count == 0
        torch.testing.assert_close(fn(X), program(X))
        assert counter.frame_count == 2
        torch.testing.assert_close(fn(torch.ones(7)), program(torch.ones(7)))
        assert counter.frame_count == 4  # a recompilation is made at once
        other = pyframe.compile(shifted_sine, backend=counter, fullgraph=True)
        other(X)
        assert counter.frame_count == 4
        other(X)
        assert counter.frame_count == 5
    pyframe.compile(shifted_sine, backend=counter)(X)
    assert counter.frame_count == 6


def test_stance_nests_and_is_checked():
    with pyframe.set_stance("eager_on_recompile"):
        with pyframe.set_stance("default"):
            counter = testing.CompileCounter()
            pyframe.compile(lambda x: x + 1, backend=counter)(X)
            assert counter.frame_count == 1
        counter = testing.CompileCounter()
        pyframe.compile(lambda x: x + 1, backend=counter)(X)
        assert counter.frame_count == 0
    with pytest.raises(pyframe.UserError, match="fail_on_recompile"):
        pyframe.set_stance("eagre")


# ---- graph breaks as errors, for a part of the program ----
def breaks(x):
    pyframe.graph_break()
    return x + 1


def test_error_on_graph_break_inside():
    def strict(x):
        y = breaks(x)
        with pyframe.error_on_graph_break(True):
            return breaks(y)

    def lenient(x):
        with pyframe.error_on_graph_break(True):
            y = x.sin()
            with pyframe.error_on_graph_break(False):
                y = breaks(y)
            return y + 1

    def lenient_then_strict(x):
        with pyframe.error_on_graph_break(True):
            with pyframe.error_on_graph_break(False):
                y = breaks(x)
            return breaks(y)

    with pytest.raises(pyframe.exc.Unsupported, match="explicit-break"):
        pyframe.compile(strict, backend="eager")(X)
    torch.testing.assert_close(pyframe.compile(lenient, backend="eager")(X), X.sin() + 2)
    with pytest.raises(pyframe.exc.Unsupported, match="explicit-break"):
        pyframe.compile(lenient_then_strict, backend="eager")(X)
    torch.testing.assert_close(pyframe.compile(breaks, backend="eager")(X), X + 1)  # nothing is left switched


def test_error_on_graph_break_around_and_as_decorator():
    with pyframe.error_on_graph_break(True), pytest.raises(pyframe.exc.Unsupported):
        pyframe.compile(breaks, backend="eager")(X)
    strict = pyframe.error_on_graph_break(True)(breaks)
    with pytest.raises(pyframe.exc.Unsupported):
        pyframe.compile(lambda x: strict(x) + 1, backend="eager")(X)
    lenient = pyframe.error_on_graph_break(False)(breaks)
    with pytest.raises(pyframe.exc.Unsupported):
        pyframe.compile(lenient, backend="eager", fullgraph=True)(X)
    with pytest.raises(pyframe.UserError):
        pyframe.error_on_graph_break("yes")


def test_error_on_graph_break_stays_one_graph_without_a_break(graphs):
    def program(x):
        with pyframe.error_on_graph_break(True):
            y = x.sin()
        return y + 1

    fn = pyframe.compile(program, backend=graphs, fullgraph=True)
    torch.testing.assert_close(fn(X), X.sin() + 1)
    assert len(graphs.graphs) == 1


# ---- settings ----
def test_config_is_checked():
    for wrong in (0, "8", True):
        with pytest.raises(pyframe.UserError, match="recompile_limit must be a int of at least 1"):
            pyframe.config.recompile_limit = wrong
    with pytest.raises(pyframe.UserError, match=r"unknown setting config.recompile_limt; there are: .*recompile_limit"):
        pyframe.config.recompile_limt = 3
    with pytest.raises(pyframe.UserError, match="there are"):
        _ = pyframe.config.nonsense
    with pytest.raises(pyframe.UserError, match="there are"), pyframe.config.patch(nonsense=1):
        pass
    assert not hasattr(pyframe.config, "__nonsense__") and not hasattr(pyframe.config, "nonsense")
    for name, row in pyframe.config.SETTINGS.items():
        assert row.doc and f"{name} = " in pyframe.config.describe() and name in dir(pyframe.config)


def test_config_patch_restores():
    before = pyframe.config.recompile_limit
    with pyframe.config.patch(recompile_limit=3):
        with pyframe.config.patch({"recompile_limit": 2}), pyframe.config.patch("suppress_errors", True):
            assert (pyframe.config.recompile_limit, pyframe.config.suppress_errors) == (2, True)
        assert pyframe.config.recompile_limit == 3

    @pyframe.config.patch(recompile_limit=5)
    def inside():
        return pyframe.config.recompile_limit

    assert inside() == 5
    assert pyframe.config.recompile_limit == before and not pyframe.config.suppress_errors


def test_recompile_settings():
    def texts(limit_options):
        counter = testing.CompileCounter()
        return counter, pyframe.compile(lambda x, n: x.sum(n), backend=counter, options=limit_options)

    with pyframe.config.patch(recompile_limit=2):
        counter, fn = texts({})
        with pytest.warns(UserWarning, match="recompile limit"):
            for n in ((0,), (1,), (0, 1)):
                torch.testing.assert_close(fn(X, n), X.sum(n))
        assert counter.frame_count == 2
        counter, fn = texts({"recompile_limit": 3})
        for n in ((0,), (1,), (0, 1)):
            fn(X, n)
        assert counter.frame_count == 3
        with pyframe.config.patch(fail_on_recompile_limit_hit=True):
            with pytest.raises(pyframe.exc.RecompileLimitExceeded):
                fn(X, (-1,))
    with pyframe.config.patch(error_on_recompile=True):
        counter, fn = texts({})
        fn(X, (0,))
        with pytest.raises(pyframe.exc.RecompileError, match="error_on_recompile"):
            fn(X, (1,))


def test_suppress_errors_runs_eagerly():
    def broken(gm, example_inputs):
        raise KeyError("no such thing")

    with pytest.raises(pyframe.exc.BackendCompilerFailed, match="KeyError") as raised:
        pyframe.compile(lambda x: x + 1, backend=broken)(X)
    assert isinstance(raised.value.inner_exception, KeyError)
    fn = pyframe.compile(lambda x: x + 1, backend=broken)
    with pyframe.config.patch(suppress_errors=True):
        with pytest.warns(UserWarning, match="KeyError"):
            torch.testing.assert_close(fn(X), X + 1)
    torch.testing.assert_close(fn(X), X + 1)  # the frame stays eager


def test_strict_is_of_the_compiler():
    with pytest.raises(pyframe.UserError, match="strict"):
        pyframe.compile(lambda x: x, backend="eager", options={"strict": True})


# ---- testing ----
def test_counters_count():
    counter = testing.CompileCounterWithBackend("eager")
    pyframe.compile(lambda x: (x + 1).sin(), backend=counter)(X)
    assert (counter.frame_count, counter.op_count, len(counter.graphs)) == (1, 2, 1)
    counter.clear()
    assert (counter.frame_count, counter.op_count, counter.graphs) == (0, 0, [])


def test_same():
    nan = torch.tensor([float("nan")])
    assert testing.same([X, {"a": 1.0}], [X + 1e-6, {"a": 1.0 + 1e-6}])
    assert not testing.same(X, X + 1) and not testing.same(X, X.double()) and not testing.same((X,), [X])
    assert not testing.same({"a": X}, {"b": X}) and not testing.same(nan, nan)
    assert testing.same(nan, nan, equal_nan=True) and not testing.same(1, 1.0)


def helper(values):
    return sum(value * 2 for value in sorted(values, reverse=True))


def test_trace_everything_captures_functions_without_tensors():
    import io
    import json

    def program(text):
        (loaded,) = map(json.load, [io.StringIO(text)])
        return helper(loaded["a"])

    with testing.trace_everything() as compiler:
        assert program('{"a": [1, 2, 3]}') == 12
    from pyframe import _C

    assert any(entry.owner is compiler.owner for entry in _C.entries(program))
    assert any(entry.owner is compiler.owner for entry in _C.entries(json.load))
    assert _C.get_callback() is None


def test_public_names_are_listed_and_typed():
    from pathlib import Path

    stub = Path(pyframe.__file__).with_suffix(".pyi").read_text()
    for name in pyframe.__all__:
        typed = f" as {name}\n" in stub or f"\n{name}: " in stub  # the latter of a module that is callable
        assert getattr(pyframe, name) is not None and typed, name
