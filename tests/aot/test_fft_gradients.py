"""Gradients of Fourier transforms that follow each other: the formula of one transform writes in place to the gradient
that the formula of the next one reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pyframe

STRICT = {"cache": False, "strict": True}


def there_and_back(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("length", [8, 9])
@pytest.mark.parametrize("program", [there_and_back, lambda x: torch.fft.hfft(torch.fft.ihfft(x), n=x.shape[-1])])
def test_a_backward_pass(program: Callable[..., torch.Tensor], length: int, dynamic: bool) -> None:
    x, weight = torch.randn(4, length, requires_grad=True), torch.randn(4, length)
    (want,) = torch.autograd.grad(program(x), x, weight)
    (got,) = torch.autograd.grad(pyframe.compile(program, options=STRICT, dynamic=dynamic)(x), x, weight)
    torch.testing.assert_close(got, want)


def test_gradients_that_the_graph_computes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(there_and_back(x).square().sum(), x)[0]

    x = torch.randn(4, 9, requires_grad=True)
    torch.testing.assert_close(pyframe.compile(program, options=STRICT)(x), program(x))
