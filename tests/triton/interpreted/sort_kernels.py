"""Sorted rows, greatest elements and medians on a GPU are kernels, together with what comes before and after them."""

import dataclasses
import math

import pytest
import torch
from fake_gpu import on_gpu
from op_samples import lowered
from triton_support import Runner

from inductor.codegen.triton import gpu
from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph
from inductor.lower.sorting import LONGEST_OTHERWISE, LONGEST_ROW

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def prepared(gm):
    gm.graph.eliminate_dead_code()
    return on_gpu(gm)


def same(got, want):
    """Whether all elements, and the signs of zeros, are equal."""
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert got.stride() == want.stride()
    if got.is_floating_point():
        assert torch.equal(torch.signbit(got)[~got.isnan()], torch.signbit(want)[~want.isnan()])


def run(fn, *args, externs=0, kernels=None, ties=False):
    """Runs `fn` as kernels, and returns the results and those of eager. `kernels`: how many there are; `ties`: positions
    may be others, because elements are equal."""
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=prepared))
    want = fn(*args)
    want = list(want) if isinstance(want, (tuple, list)) else [want]
    for a, e in zip(run_graph(runner.graph, args), want):  # the loop IR itself
        if not ties or e.is_floating_point():
            torch.testing.assert_close(a, e, rtol=2e-2, atol=2e-2, equal_nan=True)
    found = sum(isinstance(node, ExternKernel) for node in runner.graph.buffers)
    assert found == externs
    if kernels is not None:
        assert len(runner.steps) - found == kernels
    return [x.clone() for x in runner.run(*args)], want


def check(fn, *args, **options):
    for got, want in zip(*run(fn, *args, **options)):
        same(got, want)


def numbers(dtype, *size):
    """Few different numbers, among them NaN, infinities and both zeros."""
    if dtype == torch.bool:
        return torch.randint(0, 2, size).bool()
    if dtype.is_floating_point:
        some = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3e-5, -2.25], dtype=dtype)
        return torch.where(torch.rand(size) < 0.5, some[torch.randint(0, len(some), size)], torch.randn(size).to(dtype))
    limits = torch.iinfo(dtype)
    ends = torch.tensor([limits.min, limits.max, limits.min + 1, 0, 1], dtype=dtype)
    return torch.where(torch.rand(size) < 0.3, ends[torch.randint(0, 5, size)], torch.randint(0, 100, size).to(dtype))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("length", [2, 5, 64, 250])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_a_sort_of_rows_is_stable(dtype, length, descending):
    check(lambda x: tuple(x.sort(stable=True, dim=-1, descending=descending)), numbers(dtype, 7, length), kernels=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8])
def test_longest_rows(dtype):
    longest = LONGEST_ROW[dtype.itemsize]
    check(lambda x: tuple(x.sort(stable=True, dim=-1)), numbers(dtype, 2, longest), kernels=1)
    check(lambda x: x.sort(stable=True, dim=-1)[1], numbers(dtype, 2, longest - 1), kernels=1)
    check(lambda x: tuple(x.sort(stable=True, dim=-1)), numbers(dtype, 2, longest + 1), externs=1, kernels=0)
    across = LONGEST_OTHERWISE[dtype.itemsize]
    check(lambda x: tuple(x.sort(stable=True, dim=0)), numbers(dtype, across, 2), kernels=1)
    check(lambda x: tuple(x.sort(stable=True, dim=0)), numbers(dtype, across + 1, 2), externs=1, kernels=0)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("dtype", "length"),
    [
        (torch.bfloat16, 3), (torch.bfloat16, 511), (torch.bfloat16, 520), (torch.bfloat16, 1000), (torch.bfloat16, 1500),
        (torch.float16, 2048), (torch.float16, 3001), (torch.bool, 700), (torch.uint8, 4090), (torch.int16, 1025),
        (torch.float32, 257), (torch.float32, 516), (torch.float32, 999), (torch.int32, 700), (torch.int32, 1024),
    ],
)
def test_rows_that_one_program_sorts_alone(dtype, length, descending):
    """Their elements reach the network in another order, which depends on the size of elements and the length."""
    x = numbers(dtype, 3, length)
    check(lambda x: tuple(x.sort(stable=True, dim=-1, descending=descending)), x, kernels=1)


@pytest.mark.parametrize("doubles", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_numbers_are_compared_as_integers_where_doubles_are_slow(dtype, doubles, monkeypatch):
    monkeypatch.setattr(gpu, "DEFAULT", dataclasses.replace(gpu.DEFAULT, doubles=doubles))
    for length in (33, 600):
        x = numbers(dtype, 4, length)
        check(lambda x: tuple(x.sort(stable=True, dim=-1)), x, kernels=1)
        order = x.sort(dim=-1, descending=True, stable=True)
        (values, positions), _ = run(lambda x: tuple(x.topk(9)), x, kernels=1, ties=True)
        same(values, order.values[:, :9].contiguous())
        assert torch.equal(positions, order.indices[:, :9])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_converted_elements_have_short_keys(dtype):
    """Rows of a float32 tensor may be longer if its elements were of half precision."""
    x = numbers(dtype, 2, 2100)
    check(lambda x: tuple(x.float().sort(stable=True, dim=-1, descending=True)), x, kernels=1)
    check(lambda x: tuple(x.float()[:, 5:1500].unsqueeze(0).sort(stable=True, dim=-1)), x, kernels=1)
    check(lambda x: tuple(x.float().to(torch.float16).float().sort(stable=True)), x.float(), kernels=1)
    few = numbers(dtype, 2, 90)
    check(lambda x: (*x.float().sort(stable=True), *(x.float() * 1.0001).sort(stable=True)), few)
    for other in (lambda x: (x.float() / 3).sort(stable=True, dim=-1), lambda x: x.double().float().sort(stable=True)):
        check(lambda x: tuple(other(x)), x, externs=1)


def test_products_of_half_precision_are_rounded_before_they_are_sorted():
    """Not bfloat16, to which the interpreter does not round to nearest."""
    a, b = torch.randn(3, 600).half(), torch.randn(3, 600).half()
    check(lambda a, b: tuple((a * b).float().sort(stable=True)), a, b, kernels=1)


def test_large_integers_differ_in_their_lower_or_upper_half():
    x = torch.tensor([[(1 << 40) + 5, (1 << 40) - 5, -(1 << 40), 5, -5, (1 << 32) - 1, 1 << 32, -1, 1 << 62, -(1 << 62)]])
    check(lambda x: (*x.sort(stable=True, dim=-1), *x.sort(stable=True, dim=-1, descending=True)), x)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_dimensions_and_layouts(dim):
    x = torch.randn(6, 20, 9)
    check(lambda x: tuple(x.sort(dim)), x, kernels=1)
    check(lambda x: tuple(x.sort(dim)), x.permute(2, 0, 1))
    check(lambda x: tuple(x.topk(3, dim)), x.permute(2, 0, 1))
    check(lambda x: tuple(x[:, ::2].sort(dim)), x)
    check(lambda x: x.argsort(dim, descending=True), x, kernels=1)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 8, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_greatest_elements(dtype, k, largest):
    x = torch.stack([torch.randperm(50) for _ in range(9)]).to(dtype)
    check(lambda x: tuple(x.topk(k, -1, largest)), x, kernels=1)
    if dtype.is_floating_point:
        x = torch.where(x == 7, math.nan, x)
        check(lambda x: tuple(x.topk(k, -1, largest)), x, kernels=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.uint8])
@pytest.mark.parametrize(("k", "length"), [(1, 2), (1, 3), (1, 8), (3, 17), (16, 33), (64, 300), (40, 777), (5, 2500)])
def test_few_of_a_row(dtype, k, length):
    """As many steps as those need, also of rows that are too long to be sorted."""
    x = numbers(dtype, 3, length)
    order = x.sort(dim=-1, descending=True, stable=True)
    (values, positions), _ = run(lambda x: tuple(x.topk(k)), x, kernels=1, ties=True)
    same(values, order.values[:, :k].contiguous())
    assert torch.equal(positions, order.indices[:, :k])


def test_values_of_greatest_elements_with_equal_ones():
    x = torch.randint(0, 5, (9, 40)).float()
    (values, positions), (want, _) = run(lambda x: tuple(x.topk(7)), x, kernels=1, ties=True)
    same(values, want)
    assert torch.equal(x.gather(1, positions), want)
    assert all(len(set(row)) == 7 for row in positions.tolist())


def test_what_comes_before_is_in_the_same_kernel():
    (values, positions), want = run(lambda x: tuple(x.softmax(-1).topk(4)), torch.randn(20, 33), kernels=1)
    torch.testing.assert_close(values, want[0])
    assert torch.equal(positions, want[1])
    check(lambda x: tuple((x * 2 + 1).sort(-1)), torch.randn(5, 100), kernels=1)


def test_what_comes_after_is_in_the_same_kernel():
    def top_p(x):
        values, positions = x.sort(-1, descending=True)
        p = values.softmax(-1)
        return torch.where(p.cumsum(-1) - p > 0.7, 0.0, p), positions

    (values, positions), want = run(top_p, torch.randn(6, 200), kernels=1)
    torch.testing.assert_close(values, want[0], rtol=1e-5, atol=1e-6)
    assert torch.equal(positions, want[1])
    check(lambda x: x.sort(-1)[0].diff(dim=-1) > 0, torch.randint(0, 9, (5, 30)))
    check(lambda x: x.sort(-1)[0].sort(-1, descending=True)[0], torch.randn(5, 30))


def test_a_few_greatest_elements_are_normalized():
    def routed(x):
        values, positions = x.softmax(-1).topk(2)
        return values / values.sum(-1, keepdim=True), positions

    (values, positions), want = run(routed, torch.randn(40, 8))
    torch.testing.assert_close(values, want[0])
    assert torch.equal(positions, want[1])


@pytest.mark.parametrize("length", [2, 9, 100])
@pytest.mark.parametrize("dtype", FLOATS + [torch.int64, torch.int32, torch.uint8])
def test_kth_values_and_medians(dtype, length):
    x = torch.stack([torch.randperm(length) for _ in range(8)]).to(dtype)
    if dtype == torch.float64:
        x = x - 3
    k = (length + 2) // 3
    check(lambda x: (*x.kthvalue(k), *x.median(-1), *x.kthvalue(1, 0, True)[:1]), x)
    check(lambda x: (*x.median(0)[:1], x[0].median()), x)


@pytest.mark.parametrize("name", ["median", "nanmedian", "kthvalue"])
def test_medians_with_nan(name):
    x = torch.stack([torch.randperm(11).float() for _ in range(6)])
    x[0, 3] = x[1] = x[2, ::2] = x[3, 1:] = math.nan
    x[4, 5] = math.inf
    args = (5,) if name == "kthvalue" else (-1,)
    results, want = run(lambda x: (*getattr(x, name)(*args), *([getattr(x[2], name)()] if args == (-1,) else [])), x, ties=True)
    same(results[0], want[0])
    torch.testing.assert_close(x.gather(1, results[1][:, None])[:, 0], want[0], equal_nan=True)
    for got, expected in zip(results[2:], want[2:]):
        same(got, expected)


@pytest.mark.parametrize("size, dim", [((), 0), ((1,), 0), ((4, 1), 1), ((4, 1), -1)])
def test_one_element(size, dim):
    check(lambda x: (*x.sort(dim), *x.topk(1, dim), *x.kthvalue(1, dim), *x.median(dim)), torch.randn(size))


@pytest.mark.parametrize("x", [torch.randn(3, 0), torch.randn(2, 1025)], ids=["empty", "long"])
def test_calls_of_aten(x):
    check(lambda x: tuple(x.sort(-1)), x, externs=1, kernels=0)


def test_gradients():
    def gradient(x, g):
        y = x.detach().requires_grad_()
        values, _ = (y * 2).sort(-1)
        return torch.autograd.grad(values, y, g)[0]

    check(gradient, torch.randn(3, 50), torch.randn(3, 50))
