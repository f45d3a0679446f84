"""Pooling with positions, and its gradient where windows are apart, as C++ loops."""

import math

import pytest
import torch
import torch.nn.functional as F

import pyframe

LAYOUTS = {"channels last": torch.channels_last, "contiguous": torch.contiguous_format}
SETTINGS = {"measure": False, "cache": False}


def with_ties(dtype, layout):
    x = torch.randint(-3, 3, (2, 16, 13, 18)).to(dtype).to(memory_format=layout)
    x[0, 0, 2, 3] = x[0, 0, 3, 3] = math.nan
    x[1, 1], x[1, 2, :4] = -math.inf, -math.inf
    return x


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("numbers", [(2, 2, 0, 1, False), (3, 2, 1, 1, False), ((3, 2), (2, 3), (1, 0), 1, True),
                                     (2, 3, 0, 2, False)], ids=str)  # fmt: skip
def test_positions_of_the_greatest(numbers, dtype, layout):
    def largest(x):
        kernel, stride, padding, dilation, ceil = numbers
        return F.max_pool2d(x, kernel, stride, padding, dilation, ceil, return_indices=True)

    x = with_ties(dtype, layout)
    values, positions = pyframe.compile(largest, options=SETTINGS)(x)
    want = largest(x)
    torch.testing.assert_close(values, want[0], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(positions, want[1])


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("pool", [
    lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2, 3, 1), lambda x: F.max_pool2d(x, (3, 2), (3, 2), 0, 1, True),
    lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 3, 1, True, False), lambda x: F.max_pool2d(x, 3, 2, 1),
], ids=["2", "2 steps of 3 padded", "3x2 rounded up", "mean 2", "mean 3 without padding", "3 steps of 2"])  # fmt: skip
def test_gradients(pool, layout):
    x = torch.randint(-3, 3, (2, 16, 13, 18)).float().to(memory_format=layout)
    grads = []
    for f in (pool, pyframe.compile(pool, options=SETTINGS)):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        out = f(leaf.relu() * 2)
        out.backward(torch.arange(out.numel(), dtype=torch.float32).view(out.shape))
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[1], grads[0])


def test_sizes_that_vary():
    largest = pyframe.compile(lambda x: F.max_pool2d(x.relu(), 2, return_indices=True), dynamic=True, options=SETTINGS)
    for size in (8, 11, 30):
        x = torch.randn(2, 3, size, size + 1)
        want = F.max_pool2d(x.relu(), 2, return_indices=True)
        assert all(torch.equal(a, b) for a, b in zip(largest(x), want))
