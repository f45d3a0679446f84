"""Inputs that a graph writes in a way that autograd records: what is computed afterwards is computed from the new value,
for autograd too; and gradients of gradients, of which the captured graph runs once more."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import pyframe

Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def written_whole(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(y)
    return x.sin() * y


def written_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[0] = y[1]
    return (x * x).sum(0)


def written_by_a_view(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.view(-1)[1:3].add_(y.mean())
    return x.cos()


def written_twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    z = x.sum() * y
    x.mul_(2)
    return z + x


def other_sizes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.t_()
    x.unsqueeze_(0)
    return x * x * y


def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    y.mul_(x)
    return y.cos()


def unseen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.detach().mul_(2)
    return x * x * y


WRITES = [written_whole, written_part, written_by_a_view, written_twice, other_sizes, both, unseen]


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    leaves = [torch.rand(3, 3, generator=torch.Generator().manual_seed(k)) + 0.5 for k in range(2)]
    first, second = (leaf.requires_grad_() for leaf in leaves)
    return first, second, first * 0.5, second * 0.5


def described(tensors: list[torch.Tensor]) -> list[tuple[object, ...]]:
    return [(x.shape, x.stride(), x.requires_grad, x.is_leaf, type(x.grad_fn).__name__) for x in tensors]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", WRITES)
def test_gradient_of_the_written_input(fn: Program, dynamic: bool) -> None:
    found = []
    for call in (fn, pyframe.compile(fn, dynamic=dynamic)):
        first, second, x, y = inputs()
        seen: list[torch.Tensor] = []
        x.retain_grad()
        result = call(x, y)
        x.register_hook(seen.append)
        gradients = torch.autograd.grad(result.sum(), [first, second, x, y], retain_graph=True)
        result.sum().backward()
        assert x.grad is not None
        found.append(([result.detach(), x.detach(), *gradients, *seen, x.grad], described([x, y])))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert found[1][1] == found[0][1]


@pytest.mark.parametrize("fn", [fn for fn in WRITES if fn is not written_twice])  # which computes from both values
def test_second_derivative(fn: Program) -> None:
    found = []
    for call in (fn, pyframe.compile(fn)):
        first, second, x, y = inputs()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a second derivative runs the captured graph in eager
            once = torch.autograd.grad(call(x, y).sum(), [first, second], create_graph=True)
            found.append([*once, *torch.autograd.grad(sum(g.pow(2).sum() for g in once), [first, second])])
    torch.testing.assert_close(found[1], found[0])


def test_second_derivative_where_an_input_is_computed_from_another_and_has_hooks() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).sin()

    found = []
    for call in (fn, pyframe.compile(fn)):
        x = torch.tensor([0.3, 0.6, 0.9], requires_grad=True)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda grad: grad * 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            once = torch.autograd.grad(call(x, y).sum(), x, create_graph=True)[0]
            found.append([once, *torch.autograd.grad(once.sum(), x)])
    torch.testing.assert_close(found[1], found[0])


def test_second_derivative_where_a_part_is_written_of_what_the_graph_computed() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y, number = x * 2, x.sum().item()
        y[0] = 3
        return torch.autograd.grad((y * y * y).sum(), y, create_graph=True)[0] * number

    found = []
    for call in (fn, pyframe.compile(fn)):
        x = torch.tensor([0.3, 0.6, 0.9], requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append([torch.autograd.grad(call(x).sum(), x)[0]])
    torch.testing.assert_close(found[1], found[0])


def test_second_derivative_where_a_view_and_its_base_are_results() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = x * x
        return out.view(-1), out, out[0].detach()

    found = []
    for call in (fn, pyframe.compile(fn)):
        x = torch.ones(2, 3).mul(0.7).requires_grad_()
        results = call(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            once = torch.autograd.grad(results[0].pow(2).sum() + results[1].sum(), x, create_graph=True)[0]
            found.append([once, *torch.autograd.grad(once.sum(), x)])
    torch.testing.assert_close(found[1], found[0])


class OneGradient(torch.autograd.Function):
    """A product whose backward gives no gradient of the first factor."""

    @staticmethod
    def forward(ctx, x, y):  # type: ignore[no-untyped-def, override]
        return x * y

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def, override]
        return None, grad


class Asks(torch.autograd.Function):
    """Gradients that depend on which results have one."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def, override]
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):  # type: ignore[no-untyped-def, override]
        if first is None:
            return second * 30
        return first * 20 if second is None else first * 2 + second * 3


@pytest.mark.parametrize("fn", [OneGradient.apply, lambda x, y: x.norm(p=0, dim=1) + y.sum(1)])
def test_an_input_without_a_gradient_has_none(fn: Program) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return fn(x, y)

    for call in (program, pyframe.compile(program)):
        first, second, x, y = inputs()
        gradients = torch.autograd.grad(call(x, y).sum(), [first, x, second], allow_unused=True)
        assert gradients[:2] == (None, None) and gradients[2] is not None


@pytest.mark.parametrize("used", [[0], [1], [0, 1]])
def test_a_function_that_asks_which_results_have_a_gradient(used: list[int]) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [each.sin() for each in Asks.apply(x.exp())]

    found = []
    for call in (program, pyframe.compile(program)):
        leaf = torch.rand(3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        results = call(leaf)
        found.append(torch.autograd.grad(sum(results[k].sum() for k in used), leaf)[0])  # type: ignore[arg-type]
    torch.testing.assert_close(found[1], found[0])
