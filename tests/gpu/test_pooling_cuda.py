"""Pooling and its gradients on a GPU, compared with eager."""

import pytest
import torch
import torch.nn.functional as F

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")

PROGRAMS = {
    "greatest": lambda x: F.max_pool2d(x * 1, 3, 2, 1),
    "greatest, ceil": lambda x: F.max_pool2d(x * 1, 2, 2, ceil_mode=True),
    "positions": lambda x: F.max_pool2d(x * 1, 3, 1, 1, return_indices=True)[0],
    "mean": lambda x: F.avg_pool2d(x * 1, 2, 2),
    "mean, padded": lambda x: F.avg_pool2d(x * 1, 3, 2, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=["last", "contiguous"])
@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients(fn, layout, dtype):
    x = torch.randn(8, 64, 57, 56, device="cuda", dtype=dtype).round(decimals=1).to(memory_format=layout)  # with ties
    results = []
    for call in (fn, pyframe.compile(fn, fullgraph=True)):
        leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        out = call(leaf)
        grad = (torch.arange(out.numel(), device="cuda") % 7 + 1).to(dtype).view(out.shape)
        results.append((out.detach(), *torch.autograd.grad(out, leaf, grad)))
    (want, gradient), (got, ours) = results
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours, gradient)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=["last", "contiguous"])
def test_positions(layout):
    x = torch.randint(-9, 9, (4, 32, 30, 31), device="cuda").float().to(memory_format=layout)
    x[0, 0, 3, 3] = x[0, 0, 4, 4] = float("nan")
    x[1, 1] = float("-inf")

    def fn(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    torch.testing.assert_close(pyframe.compile(fn, fullgraph=True)(x), fn(x), equal_nan=True)
