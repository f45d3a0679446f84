"""`torch.tensor` of lists of 0-d tensors and numbers."""

from __future__ import annotations

import pytest
import torch
from util import check

X = torch.tensor([[1.0, 2.0], [3.0, -4.0]])


def of_tensors(x):
    return torch.tensor([x[0, 0], x.sum()]) + 1, torch.tensor((x.mean(), x.max()))


def with_numbers(x):
    return torch.tensor([x[0, 0], 2, True]), torch.tensor([x.half()[0, 0], 2]), torch.tensor([x.half()[0, 0], 2.5])


def of_integers(x):
    n = x.long()
    small = n.to(torch.int8)
    return torch.tensor([n[0, 0], 2]), torch.tensor([small[0, 0], 2]), torch.tensor([small[0, 0], small[0, 1]])


def rounded_twice(x):
    n = (x[0, 0] * 0).long() + 2**53 + 2**29 + 1
    return torch.tensor([n, x[0, 0]]), torch.tensor([n, n], dtype=torch.float32)


def of_a_dtype(x):
    return torch.tensor([x[0, 0], x[0, 1]], dtype=torch.float64), torch.tensor([x[0, 0], 1], dtype=torch.bfloat16)


def truths(x):
    return torch.tensor([x[0, 0] > 0, x[1, 1] > 0, False])


def own_memory(x):
    y = torch.tensor([x[0, 0]])
    y.add_(1)
    return x, y


def to_integers(x):
    return torch.tensor([x[0, 0], x[0, 1]], dtype=torch.int64)


def of_rows(x):
    return torch.tensor([x[0, :1], x[1, :1]])


@pytest.mark.parametrize(
    ("fn", "breaks"),
    [(of_tensors, 0), (with_numbers, 0), (of_integers, 0), (rounded_twice, 0), (of_a_dtype, 0), (truths, 0),
     (own_memory, 0), (to_integers, None), (of_rows, None)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_as_in_eager(fn, breaks):
    check(fn, X, breaks=breaks)
