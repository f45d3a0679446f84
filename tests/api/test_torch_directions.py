"""Directions that a program gives to torch.compile hold in captures of pyframe, too: `torch._dynamo.graph_break()`,
`torch.compiler.allow_in_graph`, `disable`, `set_stance`, `reset`."""

from __future__ import annotations

import binascii

import forked_python
import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo import trace_rules
from torch.nn.attention import bias
from util import check

import pyframe
from pyframe.testing import CompileCounter, EagerAndRecordGraphs

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def marks_undone():
    """What the tests mark or set for the whole process."""
    kinds = (trace_rules._allowed_callable_ids, trace_rules._disallowed_callable_ids)
    before = [set(kind()) for kind in kinds]
    yield
    torch.compiler.set_stance("default")
    for kind, ids in zip(kinds, before, strict=True):
        kind().clear()
        kind().update(ids)


def explained(fn, *args):
    """What `explain` says of a call, whose result must be that of eager."""
    wanted = fn(*args)
    found = pyframe.explain(fn, backend="eager")(*args)
    torch.testing.assert_close(found.result, wanted)
    return found


def breaks(fn, *args):
    found = explained(fn, *args)
    return found.graph_count, [(each.kind, each.detail) for each in found.breaks]


def operators(fn, *args):
    found = explained(fn, *args)
    return [node.target for gm in found.graphs for node in gm.graph.nodes if node.op.startswith("call")]


# ---- settings of torch.compile ----
def test_patches_of_torch_s_settings_cost_nothing_and_survive_a_break():
    marked = torch._dynamo.patch_dynamo_config(verbose=True)(lambda x: x.sin())

    def program(x):
        with torch._dynamo.dont_skip_tracing():
            y = marked(x)
            torch._dynamo.graph_break()
            y = y * 2
        return y.cos()

    assert breaks(program, X) == (2, [("explicit-break", "torch._dynamo.graph_break was called")])
    assert torch._dynamo.config.verbose is False and not torch._dynamo.config.dont_skip_tracing


@pytest.mark.parametrize("decorate", ["disable_nested_graph_breaks", "dont_skip_tracing"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_patch_around_a_break_is_entered_before_it_ends(decorate, fails):
    def body(x):
        y = x.sin()
        print("inside", torch._dynamo.config.dont_skip_tracing)
        if fails:
            raise ValueError("of the program")
        return y * 2

    marked = getattr(torch._dynamo, decorate)(body)

    def program(x):
        try:
            y = marked(x + 1).cos()
            if torch._dynamo.config.dont_skip_tracing:
                y = y + 1
            return y
        finally:
            print("after", torch._dynamo.config.dont_skip_tracing)

    check(program, X)
    check(marked, X)


def test_a_setting_that_cannot_be_patched_is_the_error_of_eager():
    def program(x):
        with torch._dynamo.patch_dynamo_config(recompile_limit=3):
            return x + 1

    with pytest.raises(ValueError, match="does not support patching config recompile_limit"):
        pyframe.compile(program, backend="eager")(X)


# ---- breaks ----
def test_graph_break():
    def program(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    assert breaks(program, X) == (2, [("explicit-break", "torch._dynamo.graph_break was called")])
    with pytest.raises(pyframe.Unsupported, match="explicit-break"):
        pyframe.compile(program, backend="eager", fullgraph=True)(X)


@pytest.mark.parametrize("call", (lambda: torch._dynamo.graph_break("why"), lambda: torch._dynamo.graph_break(msg="why")))
def test_graph_break_with_a_message_in_a_called_function(call):
    def program(x):
        y = x.sin()
        call()
        return y.cos()

    assert breaks(program, X) == (2, [("explicit-break", "torch._dynamo.graph_break was called: why")])


def test_graph_break_with_wrong_arguments_raises():
    def program(x):
        torch._dynamo.graph_break(1, 2)
        return x + 1

    with pytest.raises(TypeError):
        pyframe.compile(program, backend="eager")(X)


def test_graph_break_passed_as_a_value():
    def program(x, between):
        y = x.sin()
        between()
        return y.cos()

    assert breaks(program, X, torch._dynamo.graph_break)[0] == 2
    assert breaks(program, X, int)[0] == 1


def test_graph_break_in_a_loop():
    def program(x):
        for _ in range(3):
            x = x.sin() + 1
            torch._dynamo.graph_break()
        return x * 2

    assert "explicit-break" in [kind for kind, _ in breaks(program, X)[1]]


def test_directions_in_files_of_torch_are_left_out():
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)  # its step calls torch._dynamo.graph_break
    parameter.grad = torch.ones(3)
    counter = CompileCounter()
    pyframe.compile(lambda: optimizer.step(), backend=counter, fullgraph=True)()
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.9))
    assert counter.frame_count == 1


def test_marks_on_functions_of_torch_are_left_out():
    def program(x):
        return x + bias.is_flash_attention_available()  # torch.nn.attention.bias allows it in the graph

    assert breaks(program, X) == (1, [])
    assert len(operators(program, X)) == 1


def skipping(x):
    y = x.sin()
    torch._dynamo.skip_frame("why")
    return called(y) + 1


def called(x):
    return x.cos() * 2


def test_skip_frame():
    assert operators(skipping, X) == ["cos", torch.ops.aten.mul] or len(operators(skipping, X)) == 2
    assert explained(skipping, X).graph_count == 1  # that of `called`
    with pytest.raises(pyframe.Unsupported, match="skip_frame was called: why"):
        pyframe.compile(skipping, backend="eager", fullgraph=True)(X)


def test_skip_frame_in_a_called_function():
    count, found = breaks(lambda x: skipping(x + 1).tan(), X)
    assert count == 3 and found == [("explicit-break", "torch._dynamo.skip_frame was called: why")]


# ---- functions in the graph or outside of it ----
def opaque(x):
    print(end="")  # a break if it were traced
    return x.sin()


def test_allow_in_graph():
    assert torch.compiler.allow_in_graph(opaque) is opaque
    assert opaque in operators(lambda x: opaque(x + 1) * 2, X)
    torch._dynamo.disallow_in_graph(opaque)
    assert breaks(lambda x: opaque(x + 1) * 2, X)[1][0] == ("disallowed-function", f"{__name__}.opaque was called")
    torch._dynamo.allow_in_graph([opaque])
    assert opaque in operators(lambda x: opaque(x + 1) * 2, X)


def test_allow_in_graph_as_a_decorator_and_of_lambdas():
    @torch.compiler.allow_in_graph
    def inner(x):
        return opaque(x) + 1

    small = torch.compiler.allow_in_graph(lambda x: opaque(x) - 1)
    assert {inner, small} <= set(operators(lambda x: small(inner(x)) * 2, X))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5


@pytest.mark.parametrize("backend", ("eager", "inductor"))
@pytest.mark.parametrize("requires_grad", (False, True))
def test_allow_in_graph_of_an_autograd_function(backend, requires_grad):
    class Tripled(Doubled):
        @staticmethod
        def forward(ctx, x):
            print(end="")  # a break if it were traced
            return x * 3

    def program(x):
        return Tripled.apply(x + 1).sin()

    def results(fn):
        x = X.clone().requires_grad_(requires_grad)
        y = fn(x)
        if requires_grad:
            y.sum().backward()
        return y, x.grad

    torch.compiler.allow_in_graph(Tripled)
    recorded = pyframe.compile(program, backend=backend, fullgraph=True)
    torch.testing.assert_close(results(recorded), results(program))


@pytest.mark.parametrize("fn", (torch.atan, nn.functional.softsign, torch.sum))
def test_disallow_in_graph(fn):
    def program(x):
        return fn(x.sin()).cos()

    assert breaks(program, X) == (1, [])
    torch._dynamo.disallow_in_graph(fn)
    count, found = breaks(program, X)
    assert count == 2 and [kind for kind, _ in found] == ["disallowed-function"]
    torch._dynamo.allow_in_graph(fn)
    assert breaks(program, X) == (1, [])


def test_forbid_in_graph():
    @torch._dynamo.forbid_in_graph
    def forbidden(x):
        return x * 2

    with pytest.raises(pyframe.Unsupported, match="forbidden, marked torch._dynamo.forbid_in_graph, was called"):
        pyframe.compile(lambda x: forbidden(x) + 1, backend="eager")(X)


def test_substitute_in_graph():
    @torch.compiler.substitute_in_graph(binascii.crc_hqx)
    def replaced(data, crc, /):
        return 7 + crc

    @torch.compiler.substitute_in_graph(binascii.b2a_uu, can_constant_fold_through=True, skip_signature_check=True)
    def not_traced(data):
        raise AssertionError

    def program(x):
        return x + binascii.crc_hqx(b"abc", 1) + replaced(b"abc", 2) + len(binascii.b2a_uu(b"abc"))

    fn = pyframe.compile(program, backend="eager", fullgraph=True)
    torch.testing.assert_close(fn(X), X + 8 + 9 + len(binascii.b2a_uu(b"abc")))
    assert program(X)[0, 0] != fn(X)[0, 0]


# ---- breaks that are errors ----
def breaks_are_errors():
    return torch._dynamo.utils._get_error_on_graph_break()


@torch._dynamo.error_on_graph_break(True)
def strict(x, broken):
    if broken:
        torch._dynamo.graph_break()
    return x + 1


def test_error_on_graph_break_of_a_function():
    fn = pyframe.compile(strict, backend="eager")
    with pytest.raises(pyframe.Unsupported, match="explicit-break"):
        fn(X, True)
    torch.testing.assert_close(fn(X, False), X + 1)
    assert breaks_are_errors() is False


def partly_strict(x, inner):
    with torch._dynamo.error_on_graph_break(True):
        y = x + 1
        with torch._dynamo.error_on_graph_break(inner):
            torch._dynamo.graph_break()
            seen = torch._dynamo.utils._get_error_on_graph_break()
            y = y.sin()
    torch._dynamo.graph_break()
    return y.cos(), seen


def test_error_on_graph_break_in_a_function():
    fn = pyframe.compile(partly_strict, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(fn(X, False), partly_strict(X, False))
        assert breaks_are_errors() is False
    with pytest.raises(pyframe.Unsupported, match="explicit-break"):
        fn(X, True)
    assert breaks_are_errors() is False


def test_error_on_graph_break_around_a_function():
    def program(x):
        with torch._dynamo.error_on_graph_break(True):
            y = x + 1
        return y

    fn = pyframe.compile(program, backend="eager")
    fn(X)
    with torch._dynamo.error_on_graph_break(True):
        with pytest.raises(pyframe.Unsupported, match="explicit-break"):
            pyframe.compile(partly_strict, backend="eager")(X, True)
        fn(X)
        assert breaks_are_errors() is True  # the context inside restores what was around it
    assert breaks_are_errors() is False


def test_disable_alone_captures_what_the_function_calls():
    @torch.compiler.disable(recursive=False)
    def marked(x):
        return called(x.sin())

    def program(x):
        return marked(x + 1) - 3

    found = explained(program, X)
    assert found.graph_count == 3 and [each.kind for each in found.breaks] == ["disabled-function"]
    assert "sin" not in operators(program, X)
    whole = torch.compiler.disable(marked.__wrapped__)
    assert explained(lambda x: whole(x + 1) - 3, X).graph_count == 2


def test_the_original_of_a_function_disabled_alone_is_captured():
    def plain(x):
        return called(x.sin())

    marked = torch.compiler.disable(plain, recursive=False)
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: marked(x) + 1, backend=counter)
    for _ in range(2):
        torch.testing.assert_close(fn(X), plain(X) + 1)
    assert counter.frame_count == 2  # `called` and the addition
    pyframe.compile(plain, backend=counter)(X)
    assert counter.frame_count == 3


def test_assume_constant_result_of_a_tensor():
    @torch.compiler.assume_constant_result
    def total(x):
        return x.sum().item()

    assert breaks(lambda x: x + total(x), X) == (1, [])


# ---- switches of the compiler ----
@pytest.mark.parametrize("switch", (torch.compiler.reset, torch._dynamo.reset))
def test_reset(switch):
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter)
    for count in (1, 2, 3):
        fn(X)
        fn(X)
        assert counter.frame_count == count
        switch()


@pytest.mark.parametrize("switch", (torch.compiler.reset, torch._dynamo.reset))
def test_reset_in_a_compiled_function(switch):
    def program(x):
        y = x.sin()
        switch()
        return y.cos()

    count, found = breaks(program, X)
    assert count == 2 and [kind for kind, _ in found] == ["compiler-switch"]


def test_force_eager():
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter)

    @torch.compiler.set_stance("force_eager")
    def decorated():
        return fn(X)

    torch.testing.assert_close(decorated(), X + 1)
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(fn(X), X + 1)
    torch.compiler.set_stance("force_eager")
    fn(X)
    assert counter.frame_count == 0
    torch.compiler.set_stance("default")
    fn(X)
    assert counter.frame_count == 1
    with torch.compiler.set_stance("force_eager"):  # also where a capture fits
        assert pyframe.compile(torch.compiler.is_compiling, backend="eager")() is False
        fn(torch.ones(7))
    assert counter.frame_count == 1


def test_existing_captures_only():
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter, dynamic=False)
    fn(X)
    with torch.compiler.set_stance("eager_on_recompile"):
        fn(X)
        torch.testing.assert_close(fn(torch.ones(7)), torch.ones(7) + 1)
    with torch.compiler.set_stance("fail_on_recompile"):
        fn(X)
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            fn(torch.ones(7))
    assert counter.frame_count == 1


def test_the_stance_of_pyframe_comes_first():
    counter = CompileCounter()
    fn = pyframe.compile(lambda x: x + 1, backend=counter)
    with torch.compiler.set_stance("fail_on_recompile"), pyframe.set_stance("eager_on_recompile"):
        fn(X)
    assert counter.frame_count == 0


def with_breaks(x, n):
    y = called(x)
    pyframe.graph_break()
    return called(y * n).sin()


@pytest.mark.parametrize("set_stance", (pyframe.set_stance, torch.compiler.set_stance))
@pytest.mark.parametrize("stance", ("eager_then_compile", "aot_eager_then_compile"))
def test_stances_that_begin_with_another_backend(set_stance, stance):
    recorded = EagerAndRecordGraphs()
    fn = pyframe.compile(with_breaks, backend=recorded)
    with set_stance(stance):
        torch.testing.assert_close(fn(torch.ones(2), 2), with_breaks(torch.ones(2), 2))
        assert not recorded.graphs
        for size in (4, 5, 6):
            x = torch.ones(size)
            torch.testing.assert_close(fn(x, size), with_breaks(x, size))
    names = [gm for gm in recorded.graphs if any(node.target in ("cos", torch.cos) for node in gm.graph.nodes)]
    assert len(names) <= 3  # sizes that differ from the first call's are symbols at once


@pytest.mark.parametrize("stance", ("eager_then_compile", "aot_eager_then_compile"))
def test_the_first_call_shows_which_sizes_vary(stance):
    counter = CompileCounter()
    fn = pyframe.compile(lambda x, n: x * n + 1, backend=counter, fullgraph=True)
    with pyframe.set_stance(stance):
        for size in (4, 5, 6, 7):
            torch.testing.assert_close(fn(torch.ones(size), size), torch.ones(size) * size + 1)
    assert counter.frame_count == 1


def test_gradients_of_a_first_call_with_aot_eager():
    layer = nn.Linear(3, 3)
    fn = pyframe.compile(lambda x: layer(x).sin().sum())
    gradients = []
    with pyframe.set_stance("aot_eager_then_compile"):
        for _ in range(3):
            layer.zero_grad()
            fn(X).backward()
            gradients.append(layer.weight.grad)
    layer.zero_grad()
    layer(X).sin().sum().backward()
    for found in gradients:
        torch.testing.assert_close(found, layer.weight.grad)


def test_set_stance_in_a_compiled_function_breaks():
    def program(x):
        y = x.sin()
        torch.compiler.set_stance("default")
        return y.cos()

    count, found = breaks(program, X)
    assert count == 2 and found[0][0] == "compiler-switch"


def test_torch_dynamo_is_not_imported():
    program = """
import sys, torch, pyframe
fn = pyframe.compile(lambda x: torch.atan(x).sin() + 1, backend="eager")
fn(torch.ones(3))
print("torch._dynamo.decorators" in sys.modules)
"""
    found = forked_python.run(program)
    assert found.stdout.strip() == "False", found.stderr
