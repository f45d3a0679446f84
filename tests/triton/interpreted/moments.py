"""Means and variances of rows that no program holds are computed in one pass, as accurately as in two."""

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import on_gpu
from torch import fx
from triton_support import Runner
from worker_sizes import lowered_once

from inductor.aot import batch_norm
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.codegen.triton import heuristics, work
from inductor.lower import lower_graph
from inductor.runtime.triton_build import build_all


def program(fn, *args):
    """The kernels of `fn`, with batch norm decomposed as on a GPU, and the kinds of its kernels."""
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(batch_norm, "_rewritten", lambda x: x.numel() > 0)
        aten = to_aten(fx.symbolic_trace(fn), list(args), decompositions())
        runner = Runner(None, graph=lower_graph(on_gpu(aten.graph), aten.shared, aten.uncounted))
        runner.share_sizes()
    return runner, [k.name.split("_")[0] for k in runner.source.kernels]


def compared(fn, *args, kinds=None, tolerance=2e-5):
    """Runs kernels and compares them with eager in float64."""
    runner, found = program(fn, *args)
    if kinds is not None:
        assert found == kinds, found
    text = "\n".join(k.text for k in runner.source.kernels)
    got = runner.run(*[a.clone(memory_format=torch.preserve_format) for a in args])
    want = fn(*[a.double() for a in args])
    for a, e in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        limit = 1e-2 if a.dtype.itemsize == 2 else tolerance
        torch.testing.assert_close(a.double(), e, rtol=limit, atol=limit, equal_nan=True)
    return text


def columns(x):
    return torch.var_mean(x, 0, correction=0)


def rows(x):
    return torch.var_mean(x, -1, correction=0)


@pytest.mark.parametrize("shape", [(1400, 20), (1403, 70), (1025, 130)])
def test_moments_across_rows(shape):
    assert "moments_step" in compared(columns, torch.randn(shape))


@pytest.mark.parametrize("shape", [(3, 20000), (1, 17001), (2, 16385), (1, 270_003)])
def test_moments_of_long_rows(shape):
    assert "moments_step" in compared(rows, torch.randn(shape))


def test_rows_that_are_held_need_no_recurrence():
    assert "moments_step" not in compared(rows, torch.randn(7, 3000))


@pytest.fixture
def joined(monkeypatch):
    """Small blocks, rows shared by several programs, and partial results that are always joined first."""
    small = {"PERSISTENT_ROW": 64, "PERSISTENT_COLUMN": 8, "BLOCK_ROW": 128, "BLOCK_COLUMNS": 16, "SPLIT_MIN_WORK": 0,
             "SHARED_STEPS": 2, "JOIN_FIRST": 0}  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(heuristics, name, value)


@pytest.mark.parametrize("offset", [1e3, 1e5, -3e6])
@pytest.mark.parametrize(("fn", "shape"), [(columns, (5000, 33)), (rows, (3, 33000)), (rows, (1, 270_000))])
def test_a_large_mean_does_not_spoil_the_variance(fn, shape, offset):
    x = torch.randn(shape) + offset
    runner, _ = program(fn, x)
    var, mean = runner.run(x)
    exact_var, exact_mean = fn(x.double())
    torch.testing.assert_close(var.double(), exact_var, rtol=1e-6, atol=0)
    torch.testing.assert_close(mean.double(), exact_mean, rtol=2e-7, atol=0)


def test_an_unlike_first_element_does_not_spoil_the_variance():
    x = torch.randn(3, 33000)
    x[:, 0] = 1e4
    x[1, 20000:] += 500
    runner, _ = program(rows, x)
    var, mean = runner.run(x)
    exact_var, exact_mean = rows(x.double())
    torch.testing.assert_close(var.double(), exact_var, rtol=1e-5, atol=0)
    assert ((mean - exact_mean) / exact_var.sqrt()).abs().max() < 1e-5


def test_a_sum_that_is_used_itself_is_not_computed_from_the_mean():
    x = torch.randn(3, 33000)
    x[:, 0], x[:, 1] = 1e6, -1e6

    def fn(x):
        total = x.sum(-1, keepdim=True)
        d = x - total / 33000.0
        return total, (d * d).sum(-1)

    runner, _ = program(fn, x)
    total, squares = runner.run(x)
    exact, exact_squares = fn(x.double())
    assert (total - exact).abs().max() < 1
    torch.testing.assert_close(squares.double(), exact_squares, rtol=1e-5, atol=0)


@pytest.mark.parametrize("length", [20001, 1001])
def test_equal_elements_have_no_variance(length):
    x = torch.full((3, length), 1234.5678)
    runner, _ = program(rows, x)
    var, mean = runner.run(x)
    assert var.abs().max() < 1e-9 and torch.equal(mean, x[:, 0])
    assert length < 16384 or not var.any()


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("size", [(7, 33, 13, 11), (2, 40, 30, 31)])
def test_a_channel_of_equal_elements_becomes_its_bias(size, layout):
    x, b = torch.full(size, 1234.5678).contiguous(memory_format=layout), torch.randn(size[1])
    runner, _ = program(lambda x, b: F.batch_norm(x, None, None, None, b, True), x, b)
    (out,) = runner.run(x, b)
    torch.testing.assert_close(out, b.view(1, -1, 1, 1).expand(size), rtol=1e-6, atol=1e-6)


def test_nan_and_infinity_spoil_only_their_row():
    x = torch.randn(4, 20001)
    x[1, 5], x[2, 7] = float("nan"), float("inf")
    runner, _ = program(rows, x)
    var, mean = runner.run(x)
    assert var.isnan().tolist() == mean.isfinite().logical_not().tolist() == [False, True, True, False]


def last(*size, dtype=torch.float32):
    return (torch.randn(*size) * 3 + 7).to(dtype).contiguous(memory_format=torch.channels_last)


def norm(x, w, b):
    return F.relu(F.batch_norm(x, None, None, w, b, True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 5, 9, 7), (8, 24, 16, 17), (1, 3, 1, 2), (3, 1, 40, 31)])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_batch_norm(shape, dtype, layout):
    x = last(*shape, dtype=dtype).contiguous(memory_format=layout)
    compared(norm, x, torch.randn(shape[1]), torch.randn(shape[1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_batch_norm_of_shared_rows(joined, layout, dtype):
    x = last(5, 20, 13, 17, dtype=dtype).contiguous(memory_format=layout)
    text = compared(norm, x, torch.randn(20), torch.randn(20))
    assert text.count("moments_step(") == 1 and text.count("moments_fold(") == 2


def test_norms_of_several_sizes_share_kernels(joined):
    """The sizes are arguments of one kernel: how many programs share a row, its length, and the number of rows."""

    def norms(x, w, b, x1, w1, b1, x2, w2, b2):
        return norm(x, w, b), norm(x1, w1, b1), norm(x2, w2, b2)

    inputs = [(last(6, 40, 16, 15), torch.randn(40), torch.randn(40)), (last(6, 24, 16, 31), torch.randn(24), torch.randn(24)),
              (last(5, 40, 16, 17), torch.randn(40), torch.randn(40))]  # fmt: skip
    text = compared(norms, *(x for each in inputs for x in each))
    assert text.count("moments_step(") == 1 and "SPLIT = size" in text


def test_partial_results_are_joined_once(joined):
    text = compared(norm, last(6, 40, 16, 15), torch.randn(40), torch.randn(40), kinds=["shared"] * 3)
    assert text.count("moments_fold(") == 2 and "moments_fold" not in text[text.rindex("@triton.jit") :]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("shape", [(5, 700), (1, 701), (3, 521)])
def test_other_reductions_are_joined_once(joined, shape, merged, monkeypatch):
    """By kernels of their own, or by the last program that has a part."""
    if not merged:
        monkeypatch.setattr(work, "MERGED_EACH", 0)

    def fn(x):
        y = x.softmax(-1) + x
        return (y - y.mean(-1, keepdim=True)) * y.amax(-1, keepdim=True), y.argmin(-1), x.amin(-1)

    runner, kinds = program(fn, x := torch.randn(shape))
    assert set(kinds) == {"shared"} and (len(kinds) == 3 if merged else len(kinds) > 3)
    assert sum("tl.atomic_add" in k.text for k in runner.source.kernels) == (2 if merged else 0)
    for got, want in zip(runner.run(x), fn(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_running_statistics(joined):
    x, w, b = last(6, 40, 16, 15), torch.randn(40), torch.randn(40)
    mean, var = torch.randn(40), torch.rand(40)

    def fn(x, mean, var, w, b):
        return F.relu(F.batch_norm(x, mean, var, w, b, True, 0.3))

    graph, kinds = program(fn, x, mean, var, w, b)
    exact = [t.double() for t in (x, mean, var, w, b)]
    (out,) = graph.run(x, mean, var, w, b)  # which updates mean and var
    torch.testing.assert_close(out.double(), fn(*exact), rtol=2e-5, atol=2e-5)
    for got, want in zip((mean, var), exact[1:3], strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
    assert kinds[:3] == ["shared"] * 3


@pytest.mark.parametrize("sizes", [((3, 20000), (2, 17001), (4, 33000)), ((37, 1500), (5, 1600), (130, 3001))])
def test_sizes_that_vary(joined, sizes):
    dim = 1 if sizes[0][1] > 16384 else 0

    def fn(x, w):
        x = x.t() if dim == 0 else x
        mean = x.sum(dim, keepdim=True) / x.shape[dim]
        return [mean, ((x - mean) * (x - mean)).sum(dim), (x - mean) * w.sum()]

    graph, symbols = lowered_once(fn, *sizes[0])
    runner, program = Runner(None, graph=graph), symbols.program()
    assert any("moments_step(" in k.text for k in runner.source.kernels)
    assert all(cubin.data for cubin in build_all(runner.source.kernels, 90))
    for n, m in sizes:
        runner.values = program.values({"size0": n, "size1": m})
        assert program.serves(runner.values)
        x, w = torch.randn(n, m) + 100, torch.randn(m)
        for got, want in zip(runner.run(x, w), fn(x.double(), w.double()), strict=True):
            torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-3)


def test_no_elements():
    x = torch.randn(0, 4, 3, 3)
    runner, kinds = program(norm, x, torch.randn(4), torch.randn(4))
    assert kinds == [] and runner.run(x, torch.randn(4), torch.randn(4))[0].shape == x.shape


def test_the_same_numbers_in_every_run():
    x = torch.randn(1, 270_003)
    runner, _ = program(rows, x)
    first = [t.clone() for t in runner.run(x)]
    assert all(torch.equal(a, b) for a, b in zip(first, runner.run(x)))
