"""Pooling and its gradients on a GPU, compared with eager on the CPU: in channels_last, eager's kernels on the GPU give
other gradients of padded means than for the same numbers contiguous, and other positions in windows of -inf."""

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
    x = torch.randn(8, 64, 57, 56, dtype=dtype).round(decimals=1)  # with ties
    grad = (torch.arange(fn(x).numel()) % 7 + 1).view(fn(x).shape)
    results = []
    for call, given in ((fn, x.float()), (pyframe.compile(fn, fullgraph=True), x.cuda().to(memory_format=layout))):
        leaf = given.requires_grad_()
        out = call(leaf)
        gradient = torch.autograd.grad(out, leaf, grad.to(out.device, out.dtype))[0]
        results.append((out.detach().to("cpu", dtype), gradient.to("cpu", dtype)))
    (want, gradient), (got, ours) = results
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours, gradient)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=["last", "contiguous"])
def test_positions(layout):
    x = torch.randint(-9, 9, (4, 32, 30, 31)).float()
    x[0, 0, 3, 3] = x[0, 0, 4, 4] = float("nan")
    x[1, 1] = float("-inf")

    def fn(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    got = pyframe.compile(fn, fullgraph=True)(x.cuda().to(memory_format=layout))
    torch.testing.assert_close(tuple(y.cpu() for y in got), fn(x), equal_nan=True)
