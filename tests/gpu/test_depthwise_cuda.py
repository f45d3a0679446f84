"""Depthwise convolutions and their gradients on a GPU, compared with float64."""

import pytest
import torch
import torch.nn.functional as F

import pyframe

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("triton")


def gradients(fn, x, w, b, grad):
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, w, b)]
    out = fn(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(out.dtype))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=["last", "contiguous"])
@pytest.mark.parametrize(
    ("batch", "channels", "side", "taps", "stride", "dilation"),
    [(2, 32, 14, 3, 1, 1), (64, 96, 56, 3, 2, 1), (16, 240, 28, 5, 2, 1), (128, 1152, 7, 5, 1, 1), (4, 48, 33, 3, 1, 2),
     (8, 64, 20, 3, 2, 2)],
)  # fmt: skip
def test_gradients(batch, channels, side, taps, stride, dilation, layout, dtype):
    def fn(x, w, b):
        return F.conv2d(x, w, b, stride, taps // 2 * dilation, dilation, channels).relu()

    x = torch.randn(batch, channels, side, side, device="cuda", dtype=dtype).to(memory_format=layout)
    w = torch.randn(channels, 1, taps, taps, device="cuda", dtype=dtype)
    b = torch.randn(channels, device="cuda", dtype=dtype)
    grad = torch.randn_like(fn(x, w, b))
    exact = gradients(fn, x.double(), w.double(), b.double(), grad)
    compiled = pyframe.compile(fn, fullgraph=True)
    for _ in range(2):
        for got, want in zip(gradients(compiled, x, w, b, grad), exact):
            assert got.dtype == dtype
            # relu's derivative may differ where the result is nearly zero: compare in the mean, and the largest roughly.
            error = (got.double() - want).abs()
            assert error.mean() <= max(torch.finfo(dtype).eps, 1e-3) * want.abs().mean() * 4
            assert error.max() <= 0.1 * want.abs().max()
