"""Norms of order 2: values against float64, gradients against eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pyframe

PROGRAMS = [
    lambda x: F.normalize(x),
    lambda x: x.norm(),
    lambda x: torch.linalg.vector_norm(x, dim=0, keepdim=True),
    lambda x: x.norm(dim=(0, 1)),
    lambda x: x[:0].norm() + x[0, 0].norm(),
    lambda x: torch.linalg.vector_norm(x, dtype=torch.float64),
]


@pytest.mark.parametrize("k", range(len(PROGRAMS)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms(k, dtype):
    fn = PROGRAMS[k]
    torch.manual_seed(0)
    x = torch.randn(37, 65, dtype=dtype, requires_grad=True)
    want, got, exact = fn(x), pyframe.compile(fn)(x), fn(x.detach().double())
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want)
    assert (got - exact).abs().max() <= 1.01 * (want - exact).abs().max() + torch.finfo(dtype).eps * exact.abs().max()
    gradient = torch.autograd.grad(got.sum(), x)[0]
    double = x.detach().double().requires_grad_()
    truth = torch.autograd.grad(fn(double).sum(), double)[0]
    torch.testing.assert_close(gradient, truth.to(dtype), atol=4 * torch.finfo(dtype).eps, rtol=1e-2)
