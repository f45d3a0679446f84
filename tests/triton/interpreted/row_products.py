"""Products of one row on a GPU are kernels: which are, and that the results are right."""

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import on_gpu
from op_samples import lowered
from triton_support import Runner

from inductor.ir.buffer import ExternKernel
from inductor.passes.bias import biases_apart


def prepared(gm):
    biases_apart(on_gpu(gm))
    gm.graph.eliminate_dead_code()
    return gm


def compared(fn, *args):
    """The numbers of calls of ATen and of kernels."""
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=prepared, row_products=True))
    (got,) = runner.run(*args)
    want = fn(*args)
    tolerance = 2e-2 if want.dtype.itemsize == 2 else 1e-4
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    assert got.stride() == want.stride()
    externs = sum(isinstance(node, ExternKernel) for node in runner.graph.buffers)
    return externs, len(runner.steps) - externs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_with_bias_and_activation(dtype):
    x, w, b = torch.randn(1, 96).to(dtype), torch.randn(260, 96).to(dtype) * 0.1, torch.randn(260).to(dtype)
    assert compared(lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), x, w, b) == (0, 1)


def test_two_products_of_one_row_and_what_follows_are_one_kernel():
    x, w, u = torch.randn(1, 1, 96), torch.randn(260, 96) * 0.1, torch.randn(260, 96) * 0.1
    assert compared(lambda x, w, u: F.silu(F.linear(x, w)) * F.linear(x, u), x, w, u) == (0, 1)


def test_batches():
    assert compared(lambda q, k: q @ k.transpose(-1, -2), torch.randn(4, 1, 64), torch.randn(4, 70, 64)) == (0, 1)


def test_a_row_that_takes_work_is_computed_once():
    x, w = torch.randn(1, 96), torch.randn(260, 96) * 0.1
    assert compared(lambda x, w: F.linear(torch.tanh(x).exp() * torch.sin(x), w), x, w) == (0, 2)


@pytest.mark.parametrize("x, w", [
    (torch.randn(2, 96), torch.randn(260, 96).t()), (torch.randn(1, 96), torch.randn(96, 260)),
    (torch.randn(1, 96), torch.randn(20, 96).t()), (torch.randn(1, 16), torch.randn(260, 16).t()),
    (torch.randn(1, 96).double(), torch.randn(260, 96).double().t()),
], ids=["two rows", "rows of the matrix are contiguous", "few results", "few terms", "float64"])  # fmt: skip
def test_other_products_are_calls_of_aten(x, w):
    assert compared(torch.mm, x, w) == (1, 0)
