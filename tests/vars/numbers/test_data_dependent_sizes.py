"""Graphs that end where an operator takes a size that depends on data to be a number."""

import pytest
import torch

import pyframe


def counts(x):
    found = x.abs().long().flatten().bincount(minlength=6)
    doubled = found * 2
    return (x > 0).nonzero().sum(0), doubled, found[torch.arange(6) >= 5].sum()


def test_the_size_may_be_that_number_or_another():
    compiled = pyframe.compile(counts)
    x = torch.randn(5, 5).clamp(-5, 5)
    for _ in range(2):
        for got, want in zip(compiled(x), counts(x)):
            assert torch.equal(got, want)
        with pytest.raises(IndexError, match="shape of the mask"):
            compiled(x.sign() * 9)


def test_a_size_that_the_rest_of_the_graph_does_not_take():
    """The capture makes a symbol that no later trace of the graph's pieces gives."""

    def fn(x, y):
        found = x.abs().long().flatten().bincount(minlength=6)
        here = torch.arange(6) < 1
        return y.triu(2).sgn(), found.roll(-2, 0) * here, torch.unique(y[0], return_counts=True)[1] + y[0]

    x, y = torch.randint(-5, 6, (9, 3)), torch.arange(9.0).reshape(3, 3)
    for got, want in zip(pyframe.compile(fn)(x, y), fn(x, y)):
        assert torch.equal(got, want)
