"""Backward passes that reach only some of the results of a compiled graph: eager computes nothing for the others."""

from __future__ import annotations

import itertools

import pytest
import torch

import pyframe

pytestmark = [
    pytest.mark.filterwarnings("ignore:inductor. a backward of some results"),
    pytest.mark.filterwarnings("ignore:inductor. a backward after some saved tensors were mutated"),
]


class _PlusOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + 1


class _Ones(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.ones(gradient.shape)


class _Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, first, second):
        return first * 2, (second + 1) * 3


class _NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


def _infinite_derivatives(x):
    return x.log(), x.sqrt() * 2, x * 3, x.exp()


def _zero_derivatives(x):
    return x.sgn(), x.floor(), x * 2


def _own_backward(x):
    return _PlusOne.apply(x), x * 2


def _constant_backward(x):
    return _Ones.apply(x), x * 2


def _two_results_of_one_function(x):
    return *_Two.apply(x, x.exp()), x * 2


def _no_gradient(x):
    return _NoGradient.apply(x), x * 2


def _shared(x):
    y = x.sin()
    return y.log(), y * 2, (y @ y).sgn()


@pytest.mark.parametrize("fn", [
    _infinite_derivatives, _zero_derivatives, _own_backward, _constant_backward, _two_results_of_one_function,
    _no_gradient, _shared,
])  # fmt: skip
def test_gradients_of_each_choice_of_results(fn):
    def gradients(run):
        count = len(run(torch.ones(3)))
        for chosen in itertools.chain.from_iterable(itertools.combinations(range(count), n + 1) for n in range(count)):
            x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
            results = [run(x)[i].sum() for i in chosen]
            torch.autograd.backward(results)
            yield chosen, None if x.grad is None else [f"{n:.5f}" for n in (x.grad + 0).tolist()]

    assert list(gradients(pyframe.compile(fn))) == list(gradients(fn))


def _logarithm(x):
    y = x + 1
    return y.log(), y * 2, y.sqrt().reshape(-1, 2)


def _own(x):
    y = x + 1
    return _PlusOne.apply(y), _Ones.apply(y), y * 2, torch.cat([y.log(), y * 3])


def _pieces(x):
    a, b = ((x + 1) * 2).chunk(2)
    return a.log(), b * 2, (a * b).sum(), (x + 1).sqrt().sum() - b


@pytest.mark.filterwarnings("error:inductor. a backward of some results")
@pytest.mark.parametrize("fn", [_logarithm, _own, _pieces])
def test_gradients_where_the_input_is_freed(fn):
    """The input is larger than what the graph keeps alive, so the graph cannot run again."""
    size = 1 << 15

    def gradients(run):
        count = len(fn(torch.ones(size)))
        for chosen in itertools.chain.from_iterable(itertools.combinations(range(count), n + 1) for n in range(count)):
            leaf = torch.full((size,), -1.0)
            leaf[:2] = torch.tensor([3.0, 1.0])
            results = run(leaf.requires_grad_() * 1)
            torch.autograd.backward([results[i].sum() for i in chosen], retain_graph=True)
            first = leaf.grad.clone()
            torch.autograd.backward([results[i].sum() for i in chosen])
            yield first, leaf.grad

    for got, want in zip(gradients(pyframe.compile(fn)), gradients(fn), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_nothing_runs_again_where_zeros_are_finite(recwarn):
    def fn(x):
        return x.exp(), x.tanh()

    x = torch.ones(3, requires_grad=True)
    pyframe.compile(fn)(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3).exp())
    assert not [w for w in recwarn if "runs the captured graph" in str(w.message)]


def test_a_written_result_that_the_backward_does_not_need():
    """Each result is saved for its own gradient; what matters is which one was written."""
    def fn(x):
        return x.exp(), x.tanh()

    def outcomes(run):
        for written, used in itertools.product(range(2), repeat=2):
            x = torch.tensor([0.5, 1.0], requires_grad=True)
            results = run(x)
            results[written].mul_(2)
            try:
                results[used].sum().backward()
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
                yield "error"
            else:
                yield [f"{n:.5f}" for n in x.grad.tolist()]

    assert list(outcomes(pyframe.compile(fn))) == list(outcomes(fn))


def test_what_follows_an_operator_without_a_derivative_is_a_function_of_its_own() -> None:
    """The backward of `unique` raises. A backward pass that does not need it must not reach it, as a part of the graph
    after `unique` would if it were one function for autograd."""

    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = b.unique().sum()
        doubled = b * 2
        columns = a.square().sum(0)
        return torch.std_mean(doubled, 0)[0], torch.dstack([columns <= total, columns]), total * 2

    a = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    gradients = []
    for run in (f, pyframe.compile(f)):
        deviation, stacked, total = run(a, b)
        loss = deviation.sum() + stacked.sum()
        gradients.append(torch.autograd.grad(loss, (a, b)))
        with pytest.raises(NotImplementedError):
            total.backward()
    torch.testing.assert_close(*gradients)
