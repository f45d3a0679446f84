"""The smallest programs that random tensor programs found wrong, and a share of tools/fuzz_graphs itself."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import pyframe
from tools.fuzz_graphs.rounding import RoundedOperators

ROOT = Path(__file__).resolve().parent.parent.parent


def padded_beside_itself(x):
    return torch.cat([F.pad(x[:, 1:], [0, 0, 0, 1]), x], 2)


def write_through_unfold(x):
    y = x * 2
    y.unfold(0, 2, 2)[0].copy_(x[:2])
    return y


def write_into_overlapping_windows(x):
    y = x * 2
    y.unfold(0, 2, 1)[0] = 5
    return y


FOUND = {
    "a mask inside a masked part reads one of two axes": (padded_beside_itself, (5, 4, 3)),
    "a write through windows that leave elements out": (write_through_unfold, (5,)),
    "a write into one of several overlapping windows": (write_into_overlapping_windows, (5,)),
}


@pytest.mark.filterwarnings("ignore:inductor. a graph")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_wrong(name, grad):
    fn, shape = FOUND[name]
    x = torch.randn(shape, requires_grad=grad)
    torch.testing.assert_close(pyframe.compile(fn)(x), fn(x))


def test_results_of_decomposed_operators_have_the_strides_of_eager():
    def fn(x):
        return F.interpolate(x, scale_factor=0.5, mode="nearest"), F.interpolate(x * 2, scale_factor=2, mode="nearest")

    x = torch.randn(2, 2, 2).permute(2, 1, 0)
    for got, want in zip(pyframe.compile(fn)(x), fn(x)):
        torch.testing.assert_close(got, want, check_stride=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_that_looks_like_its_base_is_a_tensor_of_its_own(grad, dynamic):
    def fn(x, y):
        c = x * 2
        d = c.view_as(c)
        y.add_(1)
        return x, x.squeeze(0), x.transpose(0, 0), c, d, d.transpose(0, 0), c, y, y.squeeze(0)

    def same(args, results):
        return [[a is b for a in (*args, *results)] for b in results]

    args = torch.randn(3, 4, requires_grad=grad), torch.randn(3)
    assert same(args, pyframe.compile(fn, dynamic=dynamic)(*args)) == same(args, fn(*args))


def check_with_gradient(fn, x):
    """Values, strides and the gradient of x."""
    for dynamic in (False, True):
        given = [x.detach().as_strided(x.shape, x.stride(), x.storage_offset()).requires_grad_() for _ in range(2)]
        want, got = fn(given[0]), pyframe.compile(fn, dynamic=dynamic)(given[1])
        torch.testing.assert_close(got, want, check_stride=True)
        gradients = [torch.autograd.grad(y.sum(), a)[0] for y, a in zip((want, got), given)]
        torch.testing.assert_close(gradients[1], gradients[0])


def test_a_view_of_a_small_input_that_begins_behind_its_storage():
    """A copy of it that the backward saves is laid out otherwise, so that the view's strides are others."""

    def fn(x):
        y = torch.diagonal_scatter(x, x.diagonal() * 2)
        return y / (y.abs() + 1)

    check_with_gradient(fn, torch.randn(2, 1, 2, 1)[:, :, 1, :])


def test_what_is_written_keeps_its_strides():
    def fn(x):
        y = x * 2
        y.cumsum_(-1)
        return y.flip(0)

    check_with_gradient(fn, torch.randn(3, 4, 5).permute(2, 1, 0))


def test_rounded_operators_of_which_some_gradients_are_not_wanted():
    """The derivative of layer_norm gives None as its first result where only the weight requires a gradient."""
    x, dtypes = torch.randn(3, 5), {}
    for dtype, noted in ((torch.bfloat16, True), (torch.float64, False)):
        weight = torch.ones(5, dtype=dtype, requires_grad=True)
        with RoundedOperators(dtypes, 0, noted=noted):
            loss = F.layer_norm(x.bfloat16().to(dtype), [5], weight).sum()
            (gradient,) = torch.autograd.grad(loss, weight)
    assert dtypes["native_layer_norm_backward", 1] == torch.bfloat16
    exact = F.layer_norm(x.bfloat16().double(), [5]).sum(0)
    torch.testing.assert_close(gradient, exact, rtol=0.1, atol=0.1)


def test_a_result_without_a_defined_gradient_requires_one():
    def fn(x):
        return torch.linalg.vector_norm(x, 0, -1)

    x = torch.randn(3, 4, requires_grad=True)
    got = pyframe.compile(fn)(x)
    assert got.requires_grad
    assert torch.autograd.grad(got.sum(), x, allow_unused=True) == torch.autograd.grad(fn(x).sum(), x, allow_unused=True)


@pytest.mark.parametrize("grad", [False, True])
def test_nothing_is_repeated(grad):
    x = torch.randn(0, 3, requires_grad=grad)
    for fn in (lambda x: x.repeat(2, 2, 1), lambda x: (x + 1).repeat(2, 2).sum(0)):
        torch.testing.assert_close(pyframe.compile(fn)(x), fn(x))


@pytest.mark.filterwarnings("ignore:inductor. a graph")
def test_a_write_through_as_strided_of_a_view_runs_with_aten():
    def fn(x):
        y = x * 2
        z = y[1:].as_strided((2, 1), (5, 5), 0)
        z[z > 0] = 0
        return y, z

    x = torch.randn(9, 4)
    for got, want in zip(pyframe.compile(fn)(x), fn(x)):
        torch.testing.assert_close(got, want)


def test_a_seed_gives_the_same_program_in_every_process():
    line = "from tools.fuzz_graphs.generate import generate; from tools.fuzz_graphs.grammar import ALL; "
    line += "print(*[generate(k, ALL).source() for k in range(3)])"
    made = set()
    for hashes in ("1", "2"):
        environment = dict(os.environ, PYTHONHASHSEED=hashes)
        done = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, env=environment)
        made.add(done.stdout)
    assert len(made) == 1 and "def f" in made.pop()


@pytest.mark.parametrize("alpha", [0, 2, True])
def test_truth_values_are_added_with_a_factor(alpha):
    a, b = torch.tensor([True, True, False, False] * 5), torch.tensor([True, False] * 10)
    compiled = pyframe.compile(lambda a, b: torch.add(a, b, alpha=alpha), options={"strict": True})
    assert torch.equal(compiled(a, b), torch.add(a, b, alpha=alpha))


def test_the_gradient_that_a_written_input_retains():
    def fn(x, y):
        x.mul_(y)
        return x.sin() * y

    found = []
    for call in (fn, pyframe.compile(fn)):
        leaf, y = torch.arange(3.0).requires_grad_(), torch.tensor([1.0, 2, 3]).requires_grad_()
        x = leaf * 2
        x.retain_grad()
        call(x, y).sum().backward()
        found.append((leaf.grad, y.grad, x.grad))
    torch.testing.assert_close(found[1], found[0])


TABLES = {"ASSIGNMENTS": "assignment", "UPDATES": "update"}  # of statements that write
TABLES |= {"EINSUMS": "contraction", "WINDOWS": "windows", "ORDERS": "order", "ACCUMULATED": "accumulated"}
TABLES |= {"COMPLEX": "complex_numbers", "MATRICES": "matrices", "LOSSES": "losses", "SUBSCRIPTS": "subscript"}
TABLES |= {"INTEGERS": "integers", "CONSTANTS": "constants", "TRANSFORMS": "transform", "DERIVATIVES": "derivative"}


@pytest.mark.parametrize("module", ["families", "usage"])
def test_every_expression_is_made(module):
    from tools.fuzz_graphs import grammar
    from tools.fuzz_graphs.generate import Generator, Reject

    rows = getattr(grammar, module)

    def made(table, seed):
        generator = Generator(seed, rows.ROWS, "backward" if table == "DERIVATIVES" else "forward")
        generator.scope, generator.dims, generator.extreme = {}, [2, 3, 4], False
        integers = "int64" if seed % 4 == 3 and module == "usage" else "float32"
        generator.new_input(random.Random(seed).choice([(4, 3), (2, 4, 6), (2, 3, 4, 4)]), integers, "normal")
        try:
            return generator.add(getattr(rows, TABLES[table])(generator), write=table in ("ASSIGNMENTS", "UPDATES"))
        except Reject:
            return False

    tables = {name: table for name, table in vars(rows).items() if name.isupper() and name != "ROWS"}
    assert tables.keys() <= TABLES.keys()
    for name, table in tables.items():
        for text in table:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(rows, name, (text,))
                assert any(made(name, seed) for seed in range(40)), text


def fuzz(*options):
    line = [sys.executable, "-m", "tools.fuzz_graphs", "--shrink", "0", *options]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0 and "programs with kernels" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def test_fixed_seeds_are_right():
    assert "outcomes: right 8" in fuzz("--programs", "8", "--seed", "1")


def test_large_seeds_are_right():
    assert "outcomes: right 5" in fuzz("--programs", "5", "--seed", "907739635")


def test_triton_kernels_of_fixed_seeds_are_right():
    assert "outcomes: right 5" in fuzz("--programs", "5", "--seed", "30", "--device", "fake-cuda")


def test_a_wrong_result_is_found():
    """The tool sees a compiler that is off by one element."""
    from tools.fuzz_graphs.check import check
    from tools.fuzz_graphs.generate import compact, generate
    from tools.fuzz_graphs.grammar import ALL
    from tools.fuzz_graphs.program import Program

    def off(fn, dynamic):
        def call(*args):
            out = [x.clone(memory_format=torch.contiguous_format) for x in fn(*args)]
            with torch.no_grad():
                first = next(x for x in out if x.numel())
                first.view(-1)[-1:] = first.view(-1)[-1:].logical_not() if first.dtype == torch.bool else 77
            return tuple(out)

        return call

    def right(fn, dynamic):
        return fn

    program = compact(generate(3, ALL, "forward"))
    assert Program.from_json(program.to_json()) == program
    assert check(program, right).kind == ""
    assert check(program, off).kind == "value"


def test_a_result_made_before_an_input_gets_a_history():
    """The tracing of the write makes the fake input require a gradient, which the program's does not yet."""

    def fn(x, y):
        before = torch.where(x > 0, x, True)
        x.mul_(y)
        return before

    x, y = torch.randn(3), torch.randn(3, requires_grad=True)
    got = pyframe.compile(fn)(x, y)
    assert not got.requires_grad and x.requires_grad


@pytest.mark.filterwarnings("ignore:inductor. a graph")
def test_writes_that_functionalization_cannot_express():
    def turned(x):
        y = x * 1
        z = y[:, 1:4]
        z.mT.copy_(z)
        return y

    def expanded(x):
        y = x > 0
        y.expand(5, 5).copy_(y)
        return y

    for fn, shape in ((turned, (3, 6)), (expanded, (5, 5))):
        x = torch.randn(shape)
        torch.testing.assert_close(pyframe.compile(fn)(x), fn(x))


def test_floor_division_by_infinity():
    x = torch.tensor([-0.25, 0.25, 0.0, -3.0, float("inf")] * 4)
    for y in (float("inf"), -float("inf"), 2.0, -0.3):
        fn = lambda x, y: torch.div(x, y, rounding_mode="floor")  # noqa: E731
        torch.testing.assert_close(pyframe.compile(fn)(x, torch.full_like(x, y)), fn(x, torch.full_like(x, y)), equal_nan=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_equal_numbers_have_no_deviation(dim):
    """Its derivative is no number at zero, but for an exact zero."""
    x = torch.full((9, 9), 7.7, requires_grad=True)
    got = pyframe.compile(lambda x: x.std(dim))(x)
    assert not got.any()
    assert not torch.autograd.grad(got.sum(), x)[0].any()


def test_softmax_of_no_integers():
    x = torch.zeros(0, dtype=torch.int64)
    torch.testing.assert_close(pyframe.compile(lambda x: x.softmax(0))(x), x.softmax(0))


# ---- the comparison itself


@pytest.mark.parametrize("base", [False, True])
def test_a_gradient_that_eager_does_not_have_is_none(base):
    """That of the number of elements other than zero, with respect to an input that is no leaf, too."""

    def fn(x):
        return x.norm(0, 0, keepdim=True).amax()

    for run in (fn, pyframe.compile(fn)):
        leaf = torch.randn(5, requires_grad=True)
        assert torch.autograd.grad(run(leaf * 1 if base else leaf), leaf, allow_unused=True) == (None,)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_gradients_of_norms_of_equal_elements_in_half_precision(norm):
    """The backward subtracts the mean from elements as they are stored, so the mean is that of stored elements."""

    def fn(x, y, w):
        z = torch.addcdiv(x, x, y.abs() + 1)
        return F.layer_norm(z, [8], w) if norm == "layer" else F.group_norm(z.view(1, 2, 8), 1, w[:2])

    torch.manual_seed(0)
    size = (8,) if norm == "layer" else (16,)
    args = [x.bfloat16().requires_grad_() for x in (torch.ones(size), torch.tensor(0.2), torch.randn(8))]
    found = []
    for run in (fn, pyframe.compile(fn)):
        result = run(*args)
        incoming = torch.linspace(-1, 1, result.numel()).view(result.shape).to(result)
        found.append(torch.autograd.grad(result, args, incoming))
    for got, want in zip(found[1], found[0]):
        torch.testing.assert_close(got, want, atol=2.0, rtol=0.02)


def _program(text, values, dtype="float32"):
    from tools.fuzz_graphs.program import Input, Program, Statement

    given = Input(shape=(6, 40), dtype=dtype, values=values, layout="b", base=None, grad=True)
    return Program((given,), (Statement("v0", text, True),), ("v0",), "backward", 5)


def _off(scale, at=0):
    def change(result):
        result = result.clone()
        with torch.no_grad():
            result.view(-1)[at] *= scale
        return result

    return change


@pytest.mark.parametrize(
    ("text", "values", "dtype", "change"),
    [
        ("x0.sum(-1)", "normal", "float32", lambda y: y - 1e-3),
        ("F.layer_norm(x0, [40])", "normal", "float32", _off(1.001)),
        ("F.layer_norm(x0, [40])", "normal", "bfloat16", _off(1.25)),
        ("x0.softmax(-1)", "normal", "float32", _off(1.01)),
        ("x0 * 2", "extreme", "float32", lambda y: torch.where(y.isinf(), 1.0, y)),
        ("x0 * 2", "extreme", "float32", lambda y: torch.where(y.isnan(), 1.0, y)),
        ("x0 - x0", "extreme", "float32", lambda y: torch.where(y.isnan(), torch.inf, y)),
        ("torch.var_mean(x0, -1)[1]", "normal", "float32", _off(1.001)),
    ],
)
def test_the_comparison_sees_what_is_wrong(text, values, dtype, change):
    """A compiler that changes results is found, one that does not is not."""
    from tools.fuzz_graphs import check

    program = _program(text, values, dtype)

    def wrong(fn, dynamic):
        return lambda *args: tuple(change(y) for y in fn(*args))

    assert check.check(program, wrong).kind in ("value", "gradient")
    assert check.check(program, lambda fn, dynamic: fn).kind == ""


def test_the_comparison_excuses_rounding():
    """Sums in another order, and a mean that is not a number where the order of one pass over infinities decides."""
    from tools.fuzz_graphs import check

    def reordered(fn, dynamic):
        return lambda x: (x.flip(-1).cumsum(-1)[:, -1].clone(),)

    assert check.check(_program("x0.sum(-1)", "normal"), reordered).kind == ""

    def two_passes(fn, dynamic):
        return lambda x: (x.mean(-1),)

    assert check.check(_program("torch.var_mean(x0, -1)[1]", "extreme"), two_passes).kind == ""
