"""Generated C++ kernels at sizes with tails, long rows and odd strides, against eager."""

import pytest
import torch
import torch.nn.functional as F
from kernel_groups import check, run
from kernel_programs import DTYPES, SPECIAL, UNARY, embedding_reads_rows, masked_pieces


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unary_on_special_values(dtype):
    x = torch.cat([torch.randn(1003) * 3, SPECIAL]).to(dtype)
    fns = [getattr(torch.ops.aten, name) for name in UNARY]
    _, _, outs = run(lambda x: [fn(x) for fn in fns], x)
    for name, fn, got in zip(UNARY, fns, outs):
        n = 1003 if name in ("sin", "cos") else len(x)
        torch.testing.assert_close(got[:n], fn(x)[:n], rtol=3e-6, atol=2e-7, equal_nan=True, msg=lambda m: f"{name}: {m}")


def test_copies_between_dtypes_are_exact():
    args = [torch.randint(0, 2 if d == torch.bool else 100, (517,)).to(d) for d in DTYPES]
    check(lambda *xs: [y for x in xs for y in (x.float() * 1, x.float().to(x.dtype), x.long())], *args, rtol=0, atol=0)


def test_rounding_to_half_precision():
    check(lambda x: (x.bfloat16(), x.half()), torch.randn(4099) * 100, rtol=0, atol=0)


def test_integers_wrap():
    check(lambda x: (x + x, x * x, -x), torch.arange(256, dtype=torch.uint8), rtol=0, atol=0)
    check(lambda x: (x + x, x * x, -x), torch.arange(-128, 128, dtype=torch.int8), rtol=0, atol=0)


@pytest.mark.parametrize("shape,dim", [((33, 100), 1), ((100, 33), 0), ((3, 70000), 1), ((5, 7), 1)])
def test_reductions(shape, dim):
    x = torch.rand(shape) + 0.5
    prod = 1 + (x - 1) * 1e-3
    check(lambda x, p: (x.sum(dim), x.amax(dim), x.amin(dim), p.prod(dim)), x, prod, rtol=1e-4)
    ties = torch.randint(-5, 6, shape).float()
    ties.view(-1)[3] = float("nan")
    check(lambda t: (t.argmax(dim), t.argmin(dim)), ties)


def test_full_sum_is_accurate():
    x = torch.rand(3_000_001)
    _, _, (got,) = run(lambda x: x.sum(), x)
    assert abs(got.item() - x.double().sum().item()) / got.item() < 2e-7


def test_transposed_and_computed_indices():
    i = torch.arange(37)[None] % 5 + torch.arange(53)[:, None]
    check(lambda x, y, i: torch.where(i > 20, x.t() + y, i.float()), torch.randn(37, 53), torch.randn(53, 37), i)
    check(lambda x: x.view(6, 35, 7).permute(2, 0, 1).reshape(7, 210) * 2, torch.randn(1470))


def test_masked_pieces():
    masked_pieces(check)


def test_embedding_reads_rows():
    embedding_reads_rows(check)


@pytest.mark.parametrize("bad", [50, -51])
def test_an_index_out_of_bounds_is_an_error(bad):
    table, ids = torch.randn(50, 24), torch.tensor([3, bad, 7])
    with pytest.raises(IndexError, match="out of range"):
        run(lambda w, i: w[i] * 2, table, ids)
    with pytest.raises(IndexError, match="out of range"):
        run(lambda w, i: w[i, i % 24] * 2, table, torch.tensor([bad] * 40))
    # where a mask hides it, it is none
    check(lambda w, i: F.pad(w[i], (0, 0, 1, 0)) + 1, table, torch.tensor([3, 4]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_zeros_have_the_sign_of_eagers(dtype):
    def f(x):
        return x.tanh(), torch.div(x, 2, rounding_mode="floor"), torch.div(x, -2, rounding_mode="floor"), x // 3

    x = torch.tensor([-0.0, 0.0, -1e-4, 1e-4, -0.7, 0.7] * 4, dtype=dtype)
    for size in (24, 5):
        _, _, outs = run(f, x[:size])
        for out, expected in zip(outs, f(x[:size]), strict=True):
            torch.testing.assert_close(out, expected)
            assert torch.equal(out.signbit(), expected.signbit())


@pytest.mark.parametrize("size", [5, 40000, 40003])
def test_concatenated_rows_that_several_threads_compute(size):
    """One loop over a row is split where the first part ends; OpenMP has to accept each of its parts."""
    x = torch.rand(size)
    check(lambda x: (x + 1, torch.cat([(x + 1).log(), (x + 1) * 3])), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_negative_zero_stays_negative_where_it_is_broadcast(dtype):
    def f(x, a):
        return x * a, x / a, x * -0.0, a.expand(x.shape[0]) * 1, torch.where(x > 0, -0.0, x)

    x, a = torch.ones(19, dtype=dtype), torch.tensor(-0.0, dtype=dtype)
    _, _, outs = run(f, x, a)
    for out, expected in zip(outs, f(x, a), strict=True):
        assert torch.equal(out, expected) and torch.equal(out.signbit(), expected.signbit())
