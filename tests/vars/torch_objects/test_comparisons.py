"""`torch.equal` and `torch.allclose`, whose results are bools of Python."""

from __future__ import annotations

import pytest
import torch
from util import check

X = torch.tensor([1.0, 2.0, -1.0])


def computed_with(x):
    y = x * 2
    return y * torch.equal(y, y.clone()), y.allclose(y + 1e-9), torch.allclose(y, y + 1, rtol=1, atol=5.0)


def same_memory(x):
    x = x.log()  # with a NaN, which equals itself only as the same memory
    return torch.equal(x, x), torch.equal(x, x.clone()), x.equal(x[:2]), torch.allclose(x, x, equal_nan=True)


def sizes_do_not_fit(x):
    return torch.allclose(x, x[:2])


def branch(x):
    return x + 1 if torch.equal(x, x + 1) else x - 1


def raises(x):
    if not torch.allclose(x, x + 1):
        raise ValueError("not close")
    return x * 2


@pytest.mark.parametrize(
    ("fn", "breaks"),
    [(computed_with, 0), (same_memory, 0), (sizes_do_not_fit, 0), (branch, 1), (raises, None)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_as_in_eager(fn, breaks):
    check(fn, X, breaks=breaks, graphs=1 if breaks == 0 else None)
