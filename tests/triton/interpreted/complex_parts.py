"""Complex numbers as pairs of real tensors, in kernels for a GPU."""

import math

import pytest
import torch
from fake_gpu import on_gpu
from op_samples import lowered
from triton_support import Runner

from inductor.ir.buffer import ExternKernel
from inductor.passes.complex_parts import parts_of_complex


def prepared(gm):
    assert parts_of_complex(on_gpu(gm))
    return gm


def compared(fn, *args):
    """The number of kernels of a function without ATen calls."""
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=prepared))
    want = fn(*args)
    want = list(want) if isinstance(want, tuple) else [want]
    torch.testing.assert_close(runner.run(*args), want, equal_nan=True)
    assert not [node for node in runner.graph.buffers if isinstance(node, ExternKernel)]
    return len(runner.steps)


def numbers(*size, dtype=torch.complex64):
    return torch.randn(*size, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_pointwise_operators_are_one_kernel(dtype):
    z, w = numbers(7, 33, dtype=dtype), numbers(33, dtype=dtype)
    assert compared(lambda z, w: (z * w + z / w).exp() - w, z, w) == 1
    assert compared(lambda z: (z.abs(), z.angle(), z * 2, z.reciprocal()), z) == 1


def test_rotary_embedding():
    x, turns = torch.randn(2, 5, 4, 16), numbers(5, 1, 8)

    def rotary(x, turns):
        return torch.view_as_real_copy(torch.view_as_complex_copy(x.reshape(2, 5, 4, 8, 2)) * turns).flatten(3)

    assert compared(rotary, x, turns) == 1


def test_reductions_and_strides():
    z = numbers(9, 70)
    compared(lambda z: (z.sum(0), z.t().mean(0), (z * z.abs()).sum(1)), z)
    compared(lambda z: z.t()[::3] * 2 + z.mT[::3], z)


def test_lengths_and_quotients_near_the_limits():
    parts = torch.tensor([0.0, 1e-40, 1.0, 3e38, math.inf, math.nan])
    z = torch.complex(parts.repeat(6), parts.repeat_interleave(6))
    compared(lambda z: z.abs(), z)
    compared(lambda z: 1 / z, z)
