"""The accuracy of sin and cos in C++ kernels, in units of the last place of the exact result."""

import pytest
import torch

import pyframe


def units_off(got, exact):
    """The difference from results in float64, in units of the last place in float32."""
    spacing = torch.exp2(torch.frexp(exact)[1].double().clamp(min=-125) - 24)
    return (got.double() - exact).abs() / spacing


@pytest.mark.parametrize("fn", [torch.sin, torch.cos])
def test_error_below_one_unit(fn):
    torch.manual_seed(3)
    compiled = pyframe.compile(lambda x: fn(x))
    near_quarters = torch.arange(-6400, 6400) * (torch.pi / 2)
    for x in (torch.randn(1 << 18) * 3, torch.rand(1 << 18) * 2e4 - 1e4, near_quarters, torch.randn(1 << 16) * 1e-30):
        error = units_off(compiled(x), fn(x.double()))
        assert error.max() < 1, x[error.argmax()]
    far = torch.randn(4096) * 1e12  # SLEEF
    assert units_off(compiled(far), fn(far.double())).max() < 1.05


@pytest.mark.parametrize("fn", [torch.sin, torch.cos])
def test_special_values(fn):
    x = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-44, -1e-44, 3e38, 1.0] * 5)
    got = pyframe.compile(lambda x: fn(x))(x)
    torch.testing.assert_close(got, fn(x), equal_nan=True)
    assert torch.equal(got.isnan(), fn(x).isnan())
    assert torch.equal(got.signbit() & ~got.isnan(), fn(x).signbit() & ~got.isnan())
