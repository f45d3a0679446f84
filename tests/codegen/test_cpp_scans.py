"""Running sums along rows, as loops of C++ kernels."""

import pytest
import torch
from test_cpp_axes import source_of

import pyframe


def check(fn, *args):
    """Compares with float64: the error may be twice that of ATen."""
    exact = fn(*(x.double() if x.is_floating_point() else x for x in args))
    got, eager = pyframe.compile(fn, options={"strict": True, "measure": False})(*args), fn(*args)
    for one, of_eager, of_exact in zip(got, eager, exact, strict=True):
        assert one.dtype == of_eager.dtype and one.stride() == of_eager.stride()
        if not one.is_floating_point():
            assert torch.equal(one, of_eager)
            continue
        error, allowed = ((x.double() - of_exact).abs().max() / of_exact.abs().max() for x in (one, of_eager))
        assert error <= max(1e-6, 2 * allowed), (error, allowed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32])
@pytest.mark.parametrize("size", [(5, 64), (3, 4, 77), (1000,), (2, 40000)])
def test_running_sums(dtype, size):
    x = (torch.randn(size) * 9).to(dtype)
    check(lambda x: (x.cumsum(-1), (x * 2 + 1).cumsum(-1) - x, x.cumsum(0)), x)


def test_what_is_fused():
    x, mask = torch.rand(6, 100), torch.rand(6, 100) > 0.5
    check(lambda x: (x / x.cumsum(-1), x.cumsum(-1).sum(-1), x.cumsum(-1).view(6, 4, 25).mean(-1)), x)
    check(lambda x: (x.softmax(-1).cumsum(-1), x.cumsum(-1).softmax(-1), x.cumsum(-1).cumsum(-1)), x)
    check(lambda x: (x - x.cumsum(-1).amax(-1, keepdim=True), x.view(6, 4, 25).mul(2).view(6, 100).cumsum(-1)), x)
    check(lambda x: (x.cumsum(-1).t().contiguous(), x[:, 3:70].cumsum(-1)[:, :9], x.flip(-1).cumsum(-1).flip(-1)), x)
    check(lambda m: (m.cumsum(-1), (m.long().cumsum(-1) - 1) * m), mask)
    check(lambda x: (torch.cat((x, x), 1).cumsum(-1), x.triu().cumsum(-1), x.roll(3, 1).cumsum(1)), x)
    check(lambda x: (x.cumprod(-1), x.logcumsumexp(-1), x.cummax(-1).values), x)


def test_special_values():
    x = torch.ones(4, 100)
    x[0, 40], x[1, 50], x[2, 60] = float("inf"), -float("inf"), float("nan")
    x[0, 70] = -float("inf")
    x[3] = 0
    x[3, 40:44] = torch.tensor([3e38, 3e38, -3e38, -3e38])  # infinite in float32, not in float64
    got = pyframe.compile(lambda x: x.cumsum(-1))(x)
    torch.testing.assert_close(got, x.double().cumsum(-1).float(), equal_nan=True)


def test_a_sum_is_carried_along():
    assert "running_sum" in source_of(lambda x: x.cumsum(-1), torch.randn(8, 64))
    assert "running_sum" not in source_of(lambda x: x.cumsum(0), torch.randn(64, 64))
    assert "running_sum" not in source_of(lambda x: x.cumsum(-1), torch.randn(64, 8))
