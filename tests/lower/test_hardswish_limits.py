"""`hardswish` at the limits of a dtype overflows where ATen's kernels do."""

import math

import pytest
import torch
import torch.nn.functional as F

import pyframe


@pytest.mark.parametrize("fn", [F.hardswish, F.hardsigmoid])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 67])
def test_at_limits(fn, dtype, count):
    compiled, limits = pyframe.compile(lambda x: fn(x)), torch.finfo(dtype)
    for value in (math.inf, -math.inf, math.nan, limits.max, limits.max / 4, limits.min, 0.0):
        x = torch.full((count,), value, dtype=dtype)
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0, equal_nan=True)
