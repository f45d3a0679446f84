"""Operators whose decomposition in torch computes something else than ATen."""

import pytest
import torch
import torch.nn.functional as F

import pyframe


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_as_by_aten_for_sizes_that_vary(mode):
    def enlarged(x):
        return F.interpolate(x, scale_factor=2.0, mode=mode)

    compiled = pyframe.compile(enlarged, dynamic=True)
    for n in (8, 9):
        x = torch.randint(0, 256, (2, 3, n, n + 2), dtype=torch.uint8)
        assert torch.equal(compiled(x), enlarged(x))
