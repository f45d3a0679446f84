"""Sorted rows and greatest elements on a GPU are exactly those of eager: values, signs of zeros, order of equal elements.
The kernels of one program are compiled at the same time, so each test has many of them in one."""

import dataclasses
import math

import pytest
import torch

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

from inductor.codegen.triton import gpu, sort  # noqa: E402

LENGTHS = {
    torch.bfloat16: (2, 17, 128, 200, 256, 511, 512, 520, 1000, 1024, 1500, 2048, 3001, 4096),
    torch.float16: (3, 64, 777, 4095), torch.float32: (2, 33, 128, 256, 300, 512, 516, 999, 1000, 1024),
    torch.int32: (7, 600, 1024), torch.float64: (9, 256), torch.int64: (2, 250), torch.int16: (5, 2047),
    torch.uint8: (40, 1300), torch.int8: (1024,), torch.bool: (33, 900),
}  # fmt: skip


def numbers(dtype, rows, length):
    """Few different numbers, among them NaN, infinities and both zeros."""
    size, draws = (rows, length), torch.Generator().manual_seed(length)
    if dtype == torch.bool:
        return torch.randint(0, 2, size, generator=draws).bool().cuda()
    if dtype.is_floating_point:
        some = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3e-5, -2.25], dtype=dtype)
        at = torch.randint(0, len(some), size, generator=draws)
        mixed = torch.where(torch.rand(size, generator=draws) < 0.4, some[at], torch.randn(size, generator=draws).to(dtype))
        return mixed.cuda()
    limits = torch.iinfo(dtype)
    ends = torch.tensor([limits.min, limits.max, limits.min + 1, 0, 1], dtype=dtype)
    at = torch.randint(0, 5, size, generator=draws)
    small = torch.randint(0, 100, size, generator=draws).to(dtype)
    return torch.where(torch.rand(size, generator=draws) < 0.3, ends[at], small).cuda()


def same(got, want):
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert got.stride() == want.stride()
    if got.is_floating_point():
        assert torch.equal(torch.signbit(got)[~got.isnan()], torch.signbit(want)[~want.isnan()])


@pytest.fixture
def compiled(monkeypatch):
    """Compiles again, and without a comparison with ATen's time, and checks that kernels do all `sorts`."""
    written, emit = [], sort.emit
    monkeypatch.setattr(sort, "emit", lambda *args: written.append(args) or emit(*args))

    def run(fn, inputs, sorts):
        results = pyframe.compile(fn, fullgraph=True, options={"measure": False, "cache": False})(*inputs)
        assert len(written) == sorts
        return results

    return run


@pytest.mark.parametrize("dtype", LENGTHS)
def test_rows_of_all_lengths(dtype, compiled):
    def fn(*rows):
        found = [x.sort(dim=-1, stable=True) for x in rows]
        found += [x.sort(dim=-1, stable=True, descending=True) for x in rows]
        return [tensor for pair in found for tensor in pair]

    rows = [numbers(dtype, 19, length) for length in LENGTHS[dtype]]
    for got, want in zip(compiled(fn, rows, 2 * len(rows)), fn(*rows)):
        same(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int32])
def test_few_of_a_row(dtype, compiled):
    """Elements that are the first of a stable sort, and for eager's topk the same elements."""
    def fn(*rows):
        return [tensor for x, k in zip(rows, (1, 2, 64, 5)) for tensor in x.topk(k)]

    rows = [numbers(dtype, 70, length) for length in (8, 60, 1024, 3001)]
    found, eager = compiled(fn, rows, 4), fn(*rows)
    for x, values, positions, wanted in zip(rows, found[::2], found[1::2], eager[::2]):
        order = x.sort(dim=-1, descending=True, stable=True)
        assert torch.equal(positions, order.indices[:, : positions.size(1)])
        same(values, order.values[:, : values.size(1)].contiguous())
        torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)


def test_different_elements_have_the_positions_of_topk(compiled):
    x = torch.rand(300, 1024, device="cuda").argsort(-1).float() / 16
    for got, want in zip(compiled(lambda x: tuple(x.topk(64)), [x], 1), x.topk(64)):
        same(got, want)


def test_numbers_are_compared_as_integers_where_doubles_are_slow(compiled, monkeypatch):
    def fn(x, y):
        return *x.sort(dim=-1, stable=True), *y.sort(dim=-1, stable=True, descending=True)

    slow = dataclasses.replace(gpu.gpu_of(torch.device("cuda")), doubles=False)
    monkeypatch.setattr(gpu, "_present", lambda index: slow)
    rows = numbers(torch.float32, 30, 1000), numbers(torch.int32, 30, 300)
    for got, want in zip(compiled(fn, rows, 2), fn(*rows)):
        same(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_left_of_converted_logits(dtype, compiled):
    """Elements of half precision are sorted as such, with what comes before and after in the same kernel."""
    def fn(x):
        values, tokens = x.float().sort(dim=-1, descending=True, stable=True)
        p = values.softmax(-1)
        return values, tokens, p, p.cumsum(-1)

    x = torch.randn(300, 4096, device="cuda", dtype=dtype)
    values, tokens, p, total = compiled(fn, [x], 1)
    wanted = fn(x)
    same(values, wanted[0])
    same(tokens, wanted[1])
    torch.testing.assert_close(p, wanted[2], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(total, wanted[3], rtol=1e-5, atol=1e-6)


def test_columns_and_more_after_a_sort(compiled):
    def fn(x, y):
        ahead, order = x.sort(dim=0, stable=True)
        median = y.sort(dim=-1)[0][:, 300]
        return ahead, order, median

    rows = numbers(torch.float32, 300, 40), torch.randn(64, 1000, device="cuda", dtype=torch.bfloat16)
    for got, want in zip(compiled(fn, rows, 2), fn(*rows)):
        same(got, want)
