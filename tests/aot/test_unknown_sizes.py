"""Operators that make a tensor of a size that is not known when compiling."""

import pytest
import torch

import pyframe


def test_size_that_the_program_never_reads_is_an_ordinary_fallback():
    def f(x):
        counts = torch.unique(x, return_counts=True)[1]
        return torch.where(torch.arange(2) > 0, counts, -counts)

    x = torch.tensor([1.0, 2.0, 2.0])
    with pytest.warns(UserWarning, match="a size that is not known when compiling"):
        found = pyframe.compile(f)(x)
    torch.testing.assert_close(found, f(x))
