"""The option `verify`: a fault of a kernel is found, named, and never reaches the program; a right graph is left alone."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from util import line_of

import inductor.compile
import inductor.generate
import pyframe
from inductor import minify_repro, verify_policy
from inductor.codegen.cpp.ops import ARITHMETIC
from inductor.run_repro import Ending, verdict
from inductor.verify import repro
from inductor.verify.compare import Outcome, copies, difference, run
from inductor.verify.unused import remove_unused
from pyframe.metrics import counters


def waves(x, y):
    a = torch.sin(x) + y
    b = a * 2
    c = torch.cos(b)  # the cosine
    return c.sum(-1), b


@pytest.fixture
def no_cache(monkeypatch, tmp_path):
    """What is generated here is not kept; scripts go to a folder of the test."""
    monkeypatch.setattr(inductor.artifact, "load", lambda *args: None)
    monkeypatch.setattr(inductor.artifact, "store", lambda *args: None)
    monkeypatch.setenv("PYFRAME_REPRO_DIR", str(tmp_path))


@pytest.fixture
def fault(no_cache, monkeypatch):
    """Kernels compute sines in place of cosines."""
    monkeypatch.setitem(ARITHMETIC, "cos", ARITHMETIC["cos"].replace("cos", "sin"))


def call(compiled, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = compiled(*args)
    return result, [str(w.message) for w in caught if "another result" in str(w.message)]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def inputs(**kind):
    return torch.randn(6, 9, **kind), torch.randn(6, 9)


def check_message(message):
    assert f"the compiled graph of waves ({__file__}:" in message
    assert "aten.cos.default" in message and f"{__file__}:{line_of(__file__, 'the cosine')}: c = torch.cos(b)" in message, message
    assert re.search(r"computed by k\d+", message), message


def test_a_right_graph_is_compared_once():
    x, y = inputs()
    compiled = pyframe.compile(waves, options={"verify": "first"})
    for _ in range(3):
        result, messages = call(compiled, x, y)
        assert not messages
    torch.testing.assert_close(result, waves(x, y))
    assert counters["verified"] == 1 and counters["verify_failures"] == 0


def test_a_wrong_kernel_is_found(fault):
    x, y = inputs()
    compiled = pyframe.compile(waves, options={"verify": "first"})
    result, messages = call(compiled, x, y)
    assert same(result, waves(x, y)) and len(messages) == 1
    check_message(messages[0])
    again, messages = call(compiled, y, x)
    assert same(again, waves(y, x)) and not messages and counters["verify_failures"] == 1


def test_a_fault_of_a_pass_over_the_captured_graph_is_found(no_cache, monkeypatch):
    def faulty(gm):
        changed = torch.fx.GraphModule(gm, torch.fx.Graph())
        changed.graph.output(changed.graph.graph_copy(gm.graph, {}))
        for node in changed.graph.find_nodes(op="call_function", target=torch.cos):
            node.target = torch.sin
        changed.recompile()
        return changed

    monkeypatch.setattr(inductor.compile, "without_known_masks", faulty)
    x, y = inputs()
    result, messages = call(pyframe.compile(waves, options={"verify": "first"}), x, y)
    assert same(result, waves(x, y)) and len(messages) == 1


def test_explain_says_so(fault):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explained = pyframe.explain(waves, options={"verify": "first"})(*inputs())
    assert "not compiled: the compiled graph returned another result than ATen" in str(explained)


def test_gradients_are_compared(no_cache, monkeypatch):
    x, y = inputs(requires_grad=True)
    compile_half = inductor.generate.generate_half

    def faulty(half, report, sized, release=False, **rest):  # only the backward is wrong
        if release:
            monkeypatch.setitem(ARITHMETIC, "cos", ARITHMETIC["cos"].replace("cos", "sin"))
        return compile_half(half, report, sized, release, **rest)

    monkeypatch.setattr(inductor.generate, "generate_half", faulty)
    compiled = pyframe.compile(lambda x, y: torch.sin(x) * y, options={"verify": "first"})
    result, messages = call(compiled, x, y)
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos() * y)
    assert len(messages) == 1 and "gradient of input 0" in messages[0] and "aten.cos.default" in messages[0]


def test_inputs_that_are_written_get_the_values_of_eager(fault):
    def writes(x, y):
        x.mul_(torch.cos(y))
        return x + 1

    x, y = inputs()
    expected, other = x.clone(), x.clone()
    expected_result = writes(expected, y)
    result, messages = call(pyframe.compile(writes, options={"verify": "first"}), other, y)
    assert torch.equal(other, expected) and torch.equal(result, expected_result) and messages


def test_right_writes_happen_once():
    def counts(x, y):
        x += 1
        return x * y

    x, y = inputs()
    before = x.clone()
    compiled = pyframe.compile(counts, options={"verify": "first"})
    compiled(x, y)
    assert torch.equal(x, before + 1)


def test_random_numbers_are_those_of_eager():
    def drops(x, y):
        return torch.nn.functional.dropout(x, 0.5) + y

    x, y = inputs()
    torch.manual_seed(3)
    expected = drops(x, y)
    torch.manual_seed(3)
    result, messages = call(pyframe.compile(drops, options={"verify": "first"}), x, y)
    assert torch.equal(result, expected) and not messages and counters["verified"] == 1


def test_looking_for_the_fault_draws_no_random_numbers_of_the_program(fault):
    def program(x):
        return torch.nn.functional.dropout(x.cos(), 0.5) + torch.rand(5)

    x = torch.randn(6, 5)
    compiled = pyframe.compile(program, options={"verify": "first"})
    torch.manual_seed(0)
    (first, messages), second = call(compiled, x), compiled(x)
    torch.manual_seed(0)
    assert same((first, second), (program(x), program(x))) and "aten.cos.default" in messages[0], messages


def test_the_fault_of_a_graph_with_numbers_is_found(fault):
    compiled = pyframe.compile(lambda x, n: x.cos() * n, options={"verify": "first"}, dynamic=True)
    x, scripts = torch.randn(4, 3), set()
    for number in (3.5, 3):
        result, messages = call(compiled, x, number)
        assert same([result], [x.cos() * number]) and "aten.cos.default" in messages[0], messages
        scripts.add(re.search(r"To reproduce: (\S+)", messages[0])[1])
    assert len(scripts) == 2


def test_each_size_has_its_first_call(fault):
    compiled = pyframe.compile(waves, dynamic=True, options={"verify": "first"})
    for rows in (4, 5):
        x, y = torch.randn(rows, 7), torch.randn(rows, 7)
        result, _ = call(compiled, x, y)
        assert same(result, waves(x, y))
    assert counters["verify_failures"] == 1


def test_every_size_of_a_right_graph_is_compared():
    compiled = pyframe.compile(waves, dynamic=True, options={"verify": "first"})
    for rows in (4, 5, 4, 5, 6):
        call(compiled, torch.randn(rows, 7), torch.randn(rows, 7))
    assert counters["verified"] == 3


def test_a_rate_samples_calls(monkeypatch):
    monkeypatch.setattr(verify_policy, "budget", type(verify_policy.budget)())
    monkeypatch.setattr("inductor.verify.check.budget", verify_policy.budget)
    monkeypatch.setattr(verify_policy.budget, "allows", lambda rate, expected: True)
    compiled = pyframe.compile(waves, options={"verify": 0.1})
    x, y = inputs()
    for _ in range(500):
        compiled(x, y)
    assert 20 <= counters["verified"] <= 90


def test_a_rate_bounds_the_time():
    limits = type(verify_policy.budget)()
    assert not limits.allows(0.01, expected=1.0)
    limits.start -= 1000
    assert limits.allows(0.01, expected=1.0)
    limits.spent = 9.5
    assert not limits.allows(0.01, expected=1.0)


def test_a_fault_is_found_by_samples(fault, monkeypatch):
    monkeypatch.setattr("inductor.verify.check.budget.allows", lambda rate, expected: True)
    compiled = pyframe.compile(waves, options={"verify": 1.0})
    x, y = inputs()
    result, messages = call(compiled, x, y)
    assert same(result, waves(x, y)) and len(messages) == 1


def test_the_environment_turns_it_on(monkeypatch):
    monkeypatch.setenv("PYFRAME_VERIFY", "first")
    call(pyframe.compile(waves), *inputs())
    assert counters["verified"] == 1


def test_off_adds_nothing(monkeypatch):
    gm = torch.fx.symbolic_trace(waves)
    with torch.no_grad():
        plan = inductor.compile_fx(gm, list(inputs()))
    assert type(plan).__name__ == "Plan"


@pytest.mark.parametrize("wrong", ["often", 0, 1.5, True, -1])
def test_other_values_are_refused(wrong):
    with pytest.raises(pyframe.UserError, match="verify"):
        pyframe.compile(waves, options={"verify": wrong})


def test_with_torch_compile(fault):
    compiled = torch.compile(waves, backend=inductor.compile_fx, options={"verify": "first"})
    x, y = inputs()
    result, messages = call(compiled, x, y)
    assert same(result, waves(x, y)) and len(messages) == 1
    assert "aten.cos.default" in messages[0]


# ---- the script and the minifier


def many_steps(x, y):
    for _ in range(6):
        x = torch.tanh(x) + y.exp() * 0.1
    z = torch.cos(x) * y
    for _ in range(6):
        z = torch.tanh(z) - y
    return z, x, y.sum()


def test_the_minifier_leaves_the_operator_alone(fault, tmp_path):
    _, messages = call(pyframe.compile(many_steps, options={"verify": "first"}), *inputs())
    script = Path(re.search(r"To reproduce: (\S+)", messages[0])[1])
    lines: list[str] = []
    minifier = minify_repro.Minifier(script, 300, 60, lines.append)
    best = minifier.run()
    gm, given = minify_repro.load(best.path)
    names = [node.target for node in minify_repro.calls(gm)]
    assert names == [torch.cos] and best.verdict.ending is Ending.WRONG, (lines, names)
    assert sum(x.numel() for x in given) <= 2, [x.shape for x in given]


def test_the_minifier_for_an_error_of_the_compiler(no_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PYFRAME_STRICT", "")
    gm = torch.fx.symbolic_trace(many_steps)
    script = Path(repro.write_repro(gm, list(inputs()), "a crash", tmp_path))
    monkeypatch.delitem(ARITHMETIC, "cos")
    minifier = minify_repro.Minifier(script, 300, 60, lambda text: None)
    best = minifier.run()
    reduced, _ = minify_repro.load(best.path)
    assert [node.target for node in minify_repro.calls(reduced)] == [torch.cos], best
    assert best.verdict.ending is Ending.ERROR, best


def test_the_minifier_leaves_a_script_alone_that_eager_refuses(tmp_path):
    gm = torch.fx.symbolic_trace(lambda x, y: x.t() @ y.t())
    given = [torch.ones(2, 3), torch.ones(2, 3)]
    script = Path(repro.write_repro(gm, given, "not for eager", tmp_path))
    minifier = minify_repro.Minifier(script, 300, 60, lambda text: None)
    best = minifier.run()
    assert best.verdict.ending is Ending.EAGER_RAISES and best.verdict.detail and minifier.tried == 1
    assert minify_repro.main([str(script), "--output", str(tmp_path / "small.py")]) == 1


def test_a_script_runs_alone(tmp_path):
    gm = torch.fx.symbolic_trace(waves)
    script = repro.write_repro(gm, [inputs()[0].requires_grad_(), inputs()[1]], "nothing is wrong", tmp_path)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "right", done.stderr


def test_a_script_has_the_grad_mode_of_the_call(tmp_path):
    gm = torch.fx.symbolic_trace(waves)
    given = [inputs()[0].requires_grad_(), inputs()[1]]
    with torch.no_grad():
        script = repro.write_repro(gm, given, "nothing is wrong", tmp_path)
    again, _ = minify_repro.load(Path(script))
    assert not repro.grad_mode(again) and repro.grad_mode(gm)
    modes = []

    def compile_graph(gm, inputs, **options):
        modes.append(torch.is_grad_enabled())
        return gm

    assert verdict(again, given, compile_graph).ending is Ending.RIGHT and modes == [False] and torch.is_grad_enabled()


def test_a_script_imports_what_registers_its_operators(tmp_path, monkeypatch):
    (tmp_path / "doubling_operator.py").write_text(
        "import torch\n"
        "@torch.library.custom_op('test_verify::doubled', mutates_args=())\n"
        "def doubled(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x * 2\n"
        "doubled.register_fake(torch.empty_like)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("doubling_operator")
    gm = torch.fx.symbolic_trace(lambda x: torch.ops.test_verify.doubled(x.sin()))
    script = repro.write_repro(gm, [torch.randn(3)], "nothing is wrong", tmp_path)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "right", done.stderr


def test_the_minifier_keeps_writes_that_a_result_depends_on():
    def filled(x):
        new = x.new_zeros(2, 6)
        new[:, :3].copy_(x)
        torch.mul(x, 2, out=new[:, 3:])
        unused = x.clone()
        unused.add_(1)
        out = new * 1
        new.zero_()
        return out

    x = torch.randn(2, 3)
    gm = torch.fx.symbolic_trace(filled)
    remove_unused(gm, [x])
    gm.recompile()
    assert torch.equal(gm(x), filled(x))
    names = [getattr(node.target, "__name__", node.target) for node in minify_repro.calls(gm)]
    assert names == ["new_zeros", "getitem", "copy_", "getitem", "mul", "mul"], names


def test_arguments_are_written_as_code(tmp_path):
    def odd(x):
        y = x.to(torch.float64).sum(dim=[0, 1], keepdim=True)
        z = x.clone()
        torch.ops.aten.fill_.Scalar(z, float("inf"))
        return y, torch.zeros(2, device=x.device, dtype=torch.int8), z[..., 1:], x.view((2, -1)).clamp(min=-1e30, max=None)

    gm = torch.fx.symbolic_trace(odd)
    x = torch.randn(2, 4)
    script = repro.write_repro(gm, [x], 'a "quoted" text', tmp_path)
    again, given = minify_repro.load(Path(script))
    for a, b in zip(gm(x), again(*given), strict=True):
        assert torch.equal(a, b)


# ---- what counts as the same


def test_copies_share_memory_as_their_originals_do():
    base = torch.randn(4, 6)
    view, same_object = base[1:, ::2], base
    a, b, c, d = copies([base, view, same_object, 3])
    assert a is c and d == 3 and b.stride() == view.stride()
    b.zero_()
    assert (a[1:, ::2] == 0).all() and not (base[1:, ::2] == 0).all()


def test_rounding_is_no_difference():
    def sums(x):
        return (x.reshape(-1).sum(), (x > 0.25).sum(), x.round())

    x = torch.rand(300, 300)
    theirs = run(sums, copies([x]))
    ours = run(lambda x: (x.T.reshape(-1).flip(0).cumsum(0)[-1], *sums(x)[1:]), copies([x]))
    assert difference(ours, theirs, lambda convert: run(sums, copies([x], convert))) is None


@pytest.mark.parametrize(
    "other",
    [lambda x: x.sum(0) * (1 + 1e-3), lambda x: x.sum(0).double(), lambda x: x.sum(0)[:-1], lambda x: None,
     lambda x: x.sum(0).fill_(float("nan"))],
)  # fmt: skip
def test_what_is_a_difference(other):
    x = torch.rand(30, 30)
    theirs = run(lambda x: x.sum(0), copies([x]))
    assert difference(run(other, copies([x])), theirs, lambda c: run(lambda x: x.sum(0), copies([x], c))) is not None


def test_an_exception_is_compared_by_its_type():
    assert difference(Outcome(error=ValueError()), Outcome(error=ValueError()), Outcome) is None
    assert "IndexError in place of a result" in difference(Outcome(error=IndexError()), Outcome(), Outcome)


@pytest.mark.parametrize("verify", ["first", 1.0])
def test_a_checkpoint_does_not_see_the_comparison(verify):
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.GELU())
    fast = pyframe.compile(plain, options={"verify": verify, "cache": False})
    for _ in range(3):
        x = torch.randn(3, 4)
        losses = [checkpoint(f, x, use_reentrant=False).square().sum() for f in (plain, fast)]
        gradients = [torch.autograd.grad(loss, list(plain.parameters())) for loss in losses]
        torch.testing.assert_close(*gradients)
    assert counters["verified"] > 0 and not counters["verify_failures"]
