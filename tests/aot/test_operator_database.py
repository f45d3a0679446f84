"""Programs that `tools/op_suite.py` found wrong, as small as they get."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pyframe


def check(fn: Callable[..., object], make: Callable[[], tuple[torch.Tensor, ...]]) -> None:
    """Eager's results and inputs afterwards, in the call that compiles and in a hit."""
    pyframe.reset()
    fast = pyframe.compile(fn)
    for _ in range(2):
        wanted, given = make(), make()
        # eager rounds to half precision in between: by up to the spacing of numbers near 1
        tolerance = {"rtol": 0.016, "atol": 2**-7} if wanted[0].dtype is torch.bfloat16 else {}
        torch.testing.assert_close(fast(*given), fn(*wanted), **tolerance)
        torch.testing.assert_close(given, wanted, **tolerance)


def test_gradient_of_sgn() -> None:
    x = torch.randn(5, requires_grad=True)
    pyframe.compile(lambda x: torch.sgn(x))(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros(5))


@pytest.mark.parametrize("start", [0, 5])
def test_as_strided_counts_from_the_storage(start: int) -> None:
    numbers = torch.arange(20.0)
    fast = pyframe.compile(lambda x: torch.as_strided(x, (2, 2), (1, 2), 1) * 2)
    expected = torch.as_strided(numbers, (2, 2), (1, 2), 1) * 2
    for first in (start, 5 - start):  # where the input begins is not guarded
        assert torch.equal(fast(numbers[first : first + 10]), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("norm", [F.instance_norm, lambda x, m, v: F.batch_norm(x, m, v, training=True)])
def test_running_statistics(dtype: torch.dtype, norm: Callable[..., torch.Tensor]) -> None:
    x, mean, var = torch.randn(2, 3, 4).to(dtype), torch.randn(3).to(dtype), torch.rand(3).to(dtype)
    check(norm, lambda: (x.clone(), mean.clone(), var.clone()))
    check(norm, lambda: (x.clone().requires_grad_(), mean.clone(), var.clone()))


@torch.library.custom_op("op_suite_test::other_size", mutates_args=())
def other_size(x: torch.Tensor) -> torch.Tensor:
    """Twice as long as its fake says."""
    return torch.cat([x, x])


other_size.register_fake(torch.empty_like)


def test_fake_tensors_that_are_wrong_about_a_size() -> None:
    fast, x = pyframe.compile(lambda x: other_size(x + 1)), torch.arange(3.0)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            assert torch.equal(fast(x), torch.tensor([1.0, 2, 3, 1, 2, 3]))
        assert any("than its fake tensors promised" in str(w.message) for w in given)


def test_sign_of_truth_values() -> None:
    check(lambda x: (torch.sign(x), torch.sgn(x)), lambda: (torch.tensor([True, False] * 5),))


def test_arguments_that_fake_tensors_assert_against() -> None:
    with pytest.raises(RuntimeError, match="Expected both inputs"):  # torch's meta function raises AssertionError
        pyframe.compile(torch.complex)(torch.randn(3), torch.ones(3, dtype=torch.int32))
