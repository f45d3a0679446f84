"""Sums and products of integers of fewer than 32 bits wrap around as in eager, also where they stay in registers."""

import pytest
import torch

import pyframe

DTYPES = [torch.uint8, torch.int8, torch.int16]


def totals(x, dtype):
    rows = x.sum(1, dtype=dtype)
    return rows.sum(), rows.to(torch.float32) / 2, x.prod(0, dtype=dtype).amax(), rows + 1 > rows


def one_row(x, dtype):
    return x.sum([0], dtype=dtype).nansum([0, -1])


@pytest.mark.parametrize("source", [torch.float32, torch.int64, torch.int16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_the_cpu(dtype, source):
    x = torch.randint(-100, 100, (5, 900)).to(source)
    torch.testing.assert_close(pyframe.compile(totals)(x, dtype), totals(x, dtype))
    y = torch.full((6, 1, 1), 2.0**15 if dtype == torch.int16 else 64.0)
    torch.testing.assert_close(pyframe.compile(one_row)(y, dtype), one_row(y, dtype))
