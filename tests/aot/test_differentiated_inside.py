"""`torch.autograd.grad` of what a graph computed, in graphs that are cut into pieces, and fused kernels of optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import pyframe


def leaf_made_inside(x: torch.Tensor) -> torch.Tensor:
    y = x.detach().requires_grad_() * 2
    return torch.autograd.grad((y * y).sum(), y, allow_unused=True, materialize_grads=True)[0]


def number_read(x: torch.Tensor) -> torch.Tensor:
    y, number = x * 2, x.sum().item()
    return torch.autograd.grad((y * y).sum(), y, create_graph=True)[0] * number


def written_before(x: torch.Tensor) -> torch.Tensor:
    y, number = x * 2, x.sum().item()
    y.mul_(3)
    return torch.autograd.grad((y * y).sum(), y, create_graph=True)[0] * number


def of_two(x: torch.Tensor) -> torch.Tensor:
    (y, w), number = (x * 2).chunk(2), x.sum().item()
    g, h = torch.autograd.grad((y * y).sum() * w.sum(), (y, w), create_graph=True)
    return g * number + h


def hessian(x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.functional.hessian(lambda y: (y.sin() * y).sum(), x)


@pytest.mark.parametrize("fn", [leaf_made_inside, number_read, written_before, of_two, hessian])
def test_gradient_with_respect_to_what_the_graph_computed(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    want, got = fn(x), pyframe.compile(fn)(x)
    torch.testing.assert_close(got, want)
    assert got.requires_grad == want.requires_grad
    if want.requires_grad:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a second derivative runs the captured graph in eager
            torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x))


@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_fused_optimizer_in_a_compiled_function(cls: type[torch.optim.Optimizer]) -> None:
    found = []
    for compiled in (False, True):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))
        optimizer = cls([weight], lr=0.1, fused=True)  # type: ignore[call-arg]

        def step(weight: torch.nn.Parameter = weight, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            weight.grad = weight.detach().sin() * 2
            optimizer.step()
            return weight.detach() * 2

        run = pyframe.compile(step, options={"strict": True}) if compiled else step
        found.append([run() for _ in range(3)])
    torch.testing.assert_close(found[1], found[0])
