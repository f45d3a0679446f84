"""Sums at positions given by index tensors, as kernels with atomic additions: the gradient of `embedding`, and `index_put`
that accumulates, which is also the gradient of `x[indices]`."""

# ruff: noqa: E402
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tools.fuzz_graphs import fake_cuda

fake_cuda.install()

import pytest
import torch
import torch.nn.functional as F
from recorded_plans import PLANS, calls, results

import pyframe
from inductor.lower import index_writes, row_sums
from inductor.runtime.plan_spec import Launch


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """Plans of graphs in the cache are not made again."""
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))


def compared(fn, tensors, *args, **options):
    """Compares results and gradients with those of eager in float64, rounded to their dtypes; the calls of ATen."""
    PLANS.clear()
    want, gradients = results(fn, [x.double() for x in tensors], args)
    got = results(pyframe.compile(fn, options={"strict": True}, **options), tensors, args)
    tolerance = 2e-2 if tensors[0].dtype.itemsize == 2 else 1e-5
    rounded = want.to(got[0].dtype), tuple(g.to(x.dtype) for g, x in zip(gradients, tensors))
    torch.testing.assert_close(got, rounded, rtol=tolerance, atol=tolerance)
    return calls()


def embedded(weight, tokens, **options):
    return F.embedding(tokens, weight, **options) * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_gradient_of_an_embedding(dtype):
    weight = torch.randn(50, 24).to(dtype)
    assert compared(embedded, [weight], torch.randint(50, (4, 9))) == []
    assert compared(embedded, [weight], torch.randint(50, (30,), dtype=torch.int32)) == []
    assert compared(embedded, [weight], torch.tensor(7)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_equal_indices(dtype):
    # Each addition to a bfloat16 sum of 3,000 would be lost.
    weight, tokens = torch.randn(5, 8).to(dtype), torch.tensor([3] * 3000 + [1] * 4)
    assert compared(lambda w, t: F.embedding(t, w) * 0.01, [weight], tokens) == []


@pytest.mark.parametrize("padding", [0, 3, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_padding_have_no_gradient(padding, dtype):
    def fn(weight, tokens):
        return F.embedding(tokens, weight, padding) * 2

    weight, tokens = torch.randn(12, 8).to(dtype), torch.randint(12, (4, 9))
    tokens[1], tokens[:, 0] = 3, 11
    assert compared(fn, [weight], tokens) == []


def test_rows_without_an_index_have_gradient_zero():
    weight, tokens = torch.randn(64, 8), torch.tensor([[1, 5, 1]])
    _, (gradient,) = results(pyframe.compile(embedded), [weight], (tokens,))
    assert gradient[[1, 5]].all() and gradient.abs().sum(-1).count_nonzero() == 2


def test_sums_that_other_operations_read():
    def fn(weight, bias, tokens):
        # tied weights: the gradient is a sum of two
        return F.linear(F.embedding(tokens, weight, 0).relu() + bias, weight).relu()

    tensors = [torch.randn(30, 8), torch.randn(8)]
    assert not any("embedding" in call for call in compared(fn, tensors, torch.randint(30, (3, 7))))


def test_sizes_that_vary():
    compiled = pyframe.compile(embedded, dynamic=True)
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((2, 5), (3, 7), (4, 70)):
            weight, tokens = torch.randn(40, 8).to(dtype), torch.randint(40, shape)
            want, got = results(embedded, [weight], (tokens,)), results(compiled, [weight], (tokens,))
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_an_empty_batch():
    _, (gradient,) = results(pyframe.compile(embedded), [torch.randn(6, 4)], (torch.zeros(0, 3, dtype=torch.int64),))
    assert gradient.shape == (6, 4) and not gradient.any()


def test_an_index_out_of_bounds_is_an_error():
    def fn(gradient, tokens):
        return torch.ops.aten.embedding_dense_backward(gradient, tokens, 6, -1, False)

    compiled = pyframe.compile(fn)
    gradient = torch.randn(3, 4)
    torch.testing.assert_close(compiled(gradient, torch.tensor([1, 5, 1])), fn(gradient, torch.tensor([1, 5, 1])))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(gradient, torch.tensor([1, 6, 1]))


def test_embeddings_that_aten_computes(monkeypatch):
    weight, tokens = torch.randn(50, 24).bfloat16(), torch.randint(50, (4, 9))

    def by_frequency(weight, tokens):
        return F.embedding(tokens, weight, scale_grad_by_freq=True)

    aten = ["aten.embedding_dense_backward.default"]
    assert compared(by_frequency, [weight], tokens) == aten
    assert compared(embedded, [weight[:1]], tokens * 0) == aten
    monkeypatch.setattr(index_writes, "SMALL_COPY", 1000)  # a float32 copy of a large table of half precision
    assert compared(embedded, [weight[:40]], tokens[:, :1] % 30) == aten
    assert compared(embedded, [weight[:30]], tokens[:, :1] % 30) == []
    assert compared(embedded, [weight.float()], tokens[:, :1]) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_gradient_of_an_index(dtype):
    def rows(x, at):
        return x[at] * 2

    def elements(x, at):
        return x[at, :, at // 2].exp()

    def apart(x, at):
        return x[:, at[:, None], at]

    x, at = torch.randn(6, 5, 4).to(dtype), torch.tensor([3, 1, 3, -1, 0])
    assert compared(rows, [x], at) == []
    assert compared(elements, [x], at) == []
    assert compared(apart, [x], at[1:2].expand(3)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_of_a_program(dtype):
    def put(x, y, at):
        return x.index_put((at,), y.exp(), accumulate=True).relu()

    def number(x, y, at):
        return x.index_put((at, at), y.sum(), accumulate=True)

    def groups(x, y, at):
        return torch.zeros_like(x).index_add(0, at, y * 3) + x.scatter_add(0, at[:, None].expand_as(y), y)

    x, y, at = torch.randn(6, 5).to(dtype), torch.randn(4, 5).to(dtype), torch.tensor([3, 1, 3, 0])
    for fn in (put, number, groups):
        assert compared(fn, [x, y], at) == []


def test_a_sum_written_to_an_input():
    def fn(x, y, at):
        x.index_put_((at,), y, accumulate=True)

    at = torch.tensor([3, 1, 3, 0])
    for dtype, in_loops in ((torch.float32, True), (torch.int32, True), (torch.bfloat16, False), (torch.int16, False)):
        x, y = (torch.randn(6, 5) * 9).to(dtype), (torch.randn(4, 5) * 9).to(dtype)
        want = x.clone()
        fn(want, y, at)
        PLANS.clear()
        pyframe.compile(fn, options={"strict": True})(x, y, at)
        torch.testing.assert_close(x, want)
        assert not any("index_put" in call for call in calls()) == in_loops


# ---- few rows of a large table


@pytest.fixture
def large(monkeypatch):
    """Tables are large enough that only sums of several rows are computed in float32."""
    monkeypatch.setattr(row_sums, "LEAST_COPY", 0)
    monkeypatch.setattr(row_sums, "LEAST_ROW", 0)


def launches():
    return [sum(isinstance(step, Launch) for step in spec.steps) for spec in PLANS]


@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_that_are_alone_are_written_at_once(large, dtype, padding):
    def fn(weight, tokens):
        return F.embedding(tokens, weight, padding) * 2

    weight = torch.randn(50, 24).to(dtype)
    cases = (torch.randint(50, (4, 9)), torch.randint(50, (30,), dtype=torch.int32), torch.arange(50),
             torch.full((7, 7), 3), torch.full((7, 7), 4), torch.tensor([[49, 3, 49, 0, 3, 7]]))  # fmt: skip
    for tokens in cases:
        assert compared(fn, [weight], tokens) == []
        assert max(launches()) == 5


def test_alone_rows_are_exact_and_others_are_zero(large):
    weight, tokens = torch.randn(64, 8).bfloat16(), torch.tensor([[1, 5, 1, 9]])
    _, (gradient,) = results(pyframe.compile(embedded), [weight], (tokens,))
    assert gradient[[1, 5, 9]].all() and gradient.abs().sum(-1).count_nonzero() == 3


def test_rows_added_to_zeros(large):
    def put(x, y, at):
        return torch.zeros_like(x).index_put((at,), y.exp(), accumulate=True).relu() + x

    def add(x, y, at):
        return x.new_zeros(6, 5).index_add(0, at.abs(), y * 3) + x

    x, y, at = torch.randn(6, 5).bfloat16(), torch.randn(4, 5).bfloat16(), torch.tensor([3, 1, -3, -1])
    for fn in (put, add):
        assert compared(fn, [x, y], at) == []
        assert max(launches()) >= 5
    assert compared(lambda x, at: x[at] * 2, [x], at) == []
    assert max(launches()) == 5


def test_rows_added_otherwise_are_summed_in_a_copy(large):
    def put(x, y, at):
        return x.index_put((at,), y, accumulate=True)

    def columns(x, y, at):
        return torch.zeros_like(x).index_add(1, at, y.t()) + x

    x, y, at = torch.randn(5, 6).bfloat16(), torch.randn(4, 6).bfloat16(), torch.tensor([3, 1, 3, 0])
    assert compared(put, [x, y], at) == []
    assert max(launches()) < 5
    assert compared(columns, [x, y[:, :5]], at) == []
    assert max(launches()) < 5
    assert compared(embedded, [x], torch.randint(5, (6,))) == []  # more rows than sums
    assert max(launches()) < 5
    assert compared(embedded, [x.float()], at) == []
    assert max(launches()) < 5


def test_an_index_out_of_bounds_among_few_rows_is_an_error(large):
    def fn(gradient, tokens):
        return torch.ops.aten.embedding_dense_backward(gradient, tokens, 6, -1, False)

    compiled = pyframe.compile(fn)
    gradient = torch.randn(3, 4).bfloat16()
    torch.testing.assert_close(compiled(gradient, torch.tensor([1, 5, 1])), fn(gradient, torch.tensor([1, 5, 1])))
    for wrong in (6, -2):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(gradient, torch.tensor([1, wrong, 1]))


def test_few_rows_whose_gradient_other_operations_read(large):
    def fn(weight, bias, tokens):
        return F.linear(F.embedding(tokens, weight, 0).relu() + bias, weight).relu()

    tensors = [torch.randn(30, 8).bfloat16(), torch.randn(8).bfloat16()]
    assert not any("embedding" in call for call in compared(fn, tensors, torch.randint(30, (3, 7))))


# ---- sums of sorted rows


@pytest.fixture
def sorts():
    """Indices are sorted."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_of_sorted_rows(sorts, dtype, padding):
    def fn(weight, tokens):
        return F.embedding(tokens, weight, padding) * 2

    weight, tokens = torch.randn(50, 24).to(dtype), torch.randint(50, (4, 9))
    assert compared(fn, [weight], tokens) == ["aten.sort.default"]
    assert compared(fn, [weight], torch.randint(10, (30,), dtype=torch.int32)) == ["aten.sort.default"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_segments_longer_than_chunks(sorts, dtype):
    # rows of every length, with whole chunks at their ends or not
    lengths = [0, 1, 31, 32, 33, 64, 95, 96, 97, 200, 0, 5, 700]
    tokens = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    tokens = tokens[torch.randperm(len(tokens))].view(2, -1)
    weight = torch.randn(len(lengths), 8).to(dtype)
    assert compared(lambda w, t: F.embedding(t, w) * 0.01, [weight], tokens) == ["aten.sort.default"]
    assert compared(lambda w, t: F.embedding(t, w, 12) * 0.01, [weight], tokens) == ["aten.sort.default"]
    assert compared(lambda w, t: F.embedding(t * 0 + 4, w) * 0.01, [weight], tokens) == ["aten.sort.default"]


def test_deterministic_algorithms_sort():
    torch.use_deterministic_algorithms(True)
    try:
        assert compared(embedded, [torch.randn(20, 8)], torch.randint(20, (3, 9))) == ["aten.sort.default"]
    finally:
        torch.use_deterministic_algorithms(False)


def test_bags_of_sorted_rows(sorts):
    def fn(weight, weights, tokens, offsets):
        bags = F.embedding_bag(tokens, weight, offsets, mode="sum", per_sample_weights=weights, padding_idx=2)
        return bags.sin()

    tokens, offsets = torch.randint(6, (100,)), torch.tensor([0, 10, 10, 90])
    assert compared(fn, [torch.randn(9, 8), torch.randn(100)], tokens, offsets) == ["aten.sort.default"]
