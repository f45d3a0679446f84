"""`gelu` at the limits of a dtype: compiled graphs return what ATen's own kernels return.

oneDNN, which eager uses on the CPU for more than one element of float32, bfloat16 and float16 with
`approximate="none"`, returns NaN for infinity and, in float32 and bfloat16, infinity for the largest number. ATen's own
kernels, which eager uses otherwise, do not.
"""
import math

import pytest
import torch
import torch.nn.functional as F

import pyframe


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 3, 67])
def test_gelu_at_limits(approximate, dtype, count):
    compiled = pyframe.compile(lambda x: F.gelu(x, approximate=approximate))
    limits = torch.finfo(dtype)
    for value in (math.inf, -math.inf, math.nan, limits.max, limits.min, 0.0):
        x = torch.full((count,), value, dtype=dtype)
        with torch.backends.mkldnn.flags(enabled=False):
            expected = F.gelu(x, approximate=approximate)
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0, equal_nan=True)
