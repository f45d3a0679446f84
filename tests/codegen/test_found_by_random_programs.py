"""The smallest programs in which random tensor programs showed wrong C++ of a CPU kernel."""

import warnings

import pytest
import torch

import pyframe


def both(f, *args):
    """What eager and the compiled function return; a fallback to ATen is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return f(*args), pyframe.compile(f)(*args)


@pytest.mark.parametrize("f", [lambda x: x.sum(-1, dtype=torch.bool), lambda x: x.prod(-1, dtype=torch.bool)])
def test_sum_and_product_of_truth_values(f):
    x = torch.tensor([[1.0] * 33, [0.0] * 33, [0.5] * 32 + [0.0]])
    want, got = both(f, x)
    assert got.dtype == torch.bool and torch.equal(got, want)


def test_sum_over_a_dimension_that_the_operand_does_not_vary_in():
    x = torch.randn(399, 1).bfloat16().expand(399, 3)
    torch.testing.assert_close(*reversed(both(lambda x: torch.trapezoid(x.float(), dim=-1).square(), x)))


@pytest.mark.parametrize("name", ["asinh", "acosh"])
def test_inverse_hyperbolic_functions_of_large_numbers(name):
    x = torch.tensor([1e8, 1e9, 1.1e9, 1e18, 1e19, 1e30, 3e38, float("inf"), 2.0] * 3)
    for numbers in (x, -x) if name == "asinh" else (x,):
        torch.testing.assert_close(*reversed(both(getattr(torch, name), numbers)))


@pytest.mark.parametrize("f", [torch.sinh, torch.cosh])
def test_hyperbolic_functions_of_numbers_whose_exponential_is_infinite(f):
    x = torch.tensor([88.0, 88.7, 88.8, 89.0, 89.4, 89.415985, 89.42, 95.0, float("inf"), float("nan"), 0.5] * 3)
    for numbers in (x, -x):
        _, got = both(f, numbers)
        torch.testing.assert_close(got, f(numbers.double()).float(), equal_nan=True)


@pytest.mark.parametrize("shape", [(5, 40), (40, 5)])
@pytest.mark.parametrize("f", [lambda x: x.std(0), lambda x: torch.var_mean(x, 1), lambda x: x.std(-1, correction=0),
                               lambda x: torch.std_mean(x, [0, 1], correction=0)])
def test_deviation_of_numbers_whose_squares_leave_float32(f, shape):
    want, got = both(f, torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 1e25)
    torch.testing.assert_close(got, want)


def test_deviation_of_equal_numbers_is_zero():
    want, got = both(lambda x: x.std(1), torch.full((4, 1001), 0.1))
    assert torch.equal(got, torch.zeros(4)) and torch.equal(got, want)
