"""Empty tensors that the program creates to receive a result."""

from __future__ import annotations

import pytest
import torch
from util import check

X = torch.arange(6.0).reshape(2, 3)


def product(x):
    out = torch.empty(0)
    result = torch.mul(x.t(), 2, out=out)
    return out, result is out, out.stride(), out.shape


def twice(x):
    out = torch.empty(0)
    torch.cat([x, x], out=out)
    torch.sin(out, out=out)
    return out * 2


def held_elsewhere(x):
    out = torch.tensor([])
    held = {"out": out}
    torch.stack([x, x], out=out)
    held["out"].add_(1)
    return held, out


def of_another_dtype(x):
    out = torch.empty(0, dtype=torch.float64)
    torch.mul(x, 2, out=out)
    return out


def with_a_view(x):
    out = x.new_empty(0)
    view = out.view(0)
    torch.mul(x, 2, out=out)
    return out, view


def given(x):
    torch.mul(torch.ones(2), 2, out=x[:0, 0])
    return x


def resized(x):
    copy = torch.empty(0).resize_(2, 3)
    copy.copy_(x)
    return copy, torch.Tensor().resize_((2, 2)).fill_(1), torch.empty(0).resize_(x.size()).zero_()


def resized_as(x):
    copy = torch.empty(0, dtype=torch.int64)
    return copy.resize_as_(x).fill_(3), copy


def resized_later(x):
    out = torch.empty(0).resize_(3).fill_(2)
    out.resize_(2)
    return out, x


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(
    ("fn", "breaks"),
    [(product, 0), (twice, 0), (held_elsewhere, 0), (of_another_dtype, 1), (with_a_view, 1), (given, None),
     (resized, 0), (resized_as, 0), (resized_later, 1)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_as_in_eager(fn, breaks):
    check(fn, X, breaks=breaks)
