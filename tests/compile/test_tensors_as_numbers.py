"""Operators that get a tensor where they take a number: they run between compiled parts of the graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pyframe

STRICT = {"cache": False, "strict": True}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: x.sin() + torch.full(x.shape, n, dtype=torch.int64) * torch.full((3,), n),
        lambda x, n: torch.add(x.sin(), x, alpha=n) * 2,
        lambda x, n: F.leaky_relu(x, n) + x.new_full((3,), n),
        lambda x, n: F.elu(x * 2, n).roll(n) * 2,
    ],
)
def test_values_and_gradients(program: Callable[..., torch.Tensor], dynamic: bool) -> None:
    fast = pyframe.compile(program, options=STRICT, dynamic=dynamic)
    for n in (2, 3):
        for needed in (False, True):
            x = torch.randn(4, 3, requires_grad=needed)
            want, got = program(x, torch.tensor(n)), fast(x, torch.tensor(n))
            torch.testing.assert_close(got, want)
            if needed:
                gradients = (torch.autograd.grad(y.sum(), x) for y in (got, want))
                torch.testing.assert_close(*gradients)
    assert pyframe.counters["fallbacks"] == 0
