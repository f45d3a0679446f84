"""Operators whose arguments count from the start of a storage, of buffers that share one with others."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import inductor
from inductor.aot.decompositions import as_strided_scatter

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
PLACES = [((8, 6), (6, 1), 0), ((6, 8), (1, 6), 0), ((4, 3), (6, 1), 0), ((4, 3), (12, 2), 1), ((2, 2, 3), (24, 6, 1), 5)]


def shares_storage(plan_of, *inputs):
    """Compiled results and eager's; what is computed before puts the buffers of the rest somewhere inside the arena."""
    call = inductor.compile_fx(fx.symbolic_trace(plan_of), list(inputs), options={"strict": True, "cache": False})
    return call(*inputs), plan_of(*inputs)


@pytest.mark.parametrize("size, stride, offset", PLACES)
def test_as_strided_scatter_in_simpler_operators(size, stride, offset):
    x, src = torch.randn(8, 6), torch.randn(size)
    want = torch.as_strided_scatter(x, src, size, stride, offset)
    torch.testing.assert_close(as_strided_scatter(x, src, size, stride, offset), want, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size, stride, offset", PLACES)
def test_as_strided_scatter(size, stride, offset, device):
    def fn(x, w, src):
        before = (x @ w).softmax(-1) @ w  # buffers in front of it
        x = torch.as_strided_scatter(x @ w + before, src, size, stride, offset)
        return (x @ w).sin() + before

    x, w, src = (torch.randn(shape, device=device) for shape in ((8, 6), (6, 6), size))
    got, want = shares_storage(fn, x, w, src)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pool", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d])
def test_gradients_of_a_pooled_image_with_channels_innermost(pool, device):
    """ATen gives its mean other strides with `as_strided_`."""
    def fn(x, w, head):
        y = F.conv2d(x, w, padding=1)
        return (pool(y * y, 1).flatten(1) @ head).square().mean()

    given = [torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last), torch.randn(8, 4, 3, 3), torch.randn(8, 5)]
    seen = []
    for compiled in (True, False):
        args = [x.to(device, copy=True).requires_grad_() for x in given]
        gm = fx.symbolic_trace(fn)
        call = inductor.compile_fx(gm, args, options={"strict": True, "cache": False}) if compiled else fn
        call(*args).backward()
        seen.append([x.grad for x in args])
    torch.testing.assert_close(*seen, rtol=2e-3 if device == "cuda" else 1e-4, atol=1e-3)
