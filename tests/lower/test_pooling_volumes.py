"""Pooling of volumes, and of large equal parts, as loops on the CPU: in the interpreter of the loop IR, and compiled."""

import pytest
import torch
import torch.nn.functional as F
from op_samples import lowered

import pyframe
from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph

SETTINGS = {"measure": False}  # ATen might be faster
X = (2, 3, 8, 10, 12)
POOLS = {
    "max": lambda x: F.max_pool3d(x, 2),
    "max, overlapping": lambda x: F.max_pool3d(x, 3, 2, 1),
    "max, dilated": lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 3), (0, 1, 1), dilation=(2, 1, 3)),
    "max, ceil": lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=True),
    "mean": lambda x: F.avg_pool3d(x, 2),
    "mean, padded": lambda x: F.avg_pool3d(x, 3, 2, 1),
    "mean, divisor": lambda x: F.avg_pool3d(x, (1, 2, 3), (2, 1, 2), divisor_override=5),
    "parts": lambda x: F.adaptive_avg_pool3d(x, (4, 5, 3)),
    "large parts": lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)),
    "large parts of images": lambda x: F.adaptive_avg_pool2d(x[0], (1, 2)),
    "large parts of signals": lambda x: F.adaptive_avg_pool1d(x.flatten(2), 5),
    "normalized responses": lambda x: F.local_response_norm(x, 3),
}


def check_loops(fn, *args):
    graph = lowered(fn, *args)
    assert not any(isinstance(b, ExternKernel) for b in graph.buffers)
    torch.testing.assert_close(run_graph(graph, list(args)), list(fn(*args)), equal_nan=True)


@pytest.mark.parametrize("name", POOLS)
def test_loops(name):
    check_loops(lambda x: [POOLS[name](x.sin()) * 2], torch.randn(X))


def test_positions():
    x = torch.randn(X)
    x[0, 0, 2, 3, 4] = torch.nan
    x[1] = -torch.inf
    check_loops(lambda x: list(torch.ops.aten.max_pool3d_with_indices(x, [3, 2, 3], [2, 2, 2], [1, 1, 1])), x)


def test_gradients_of_windows_apart():
    x = torch.randn(X)
    out, indices = torch.ops.aten.max_pool3d_with_indices(x, [2, 3, 2], [2, 3, 3])
    g = torch.randn_like(out)
    options = [2, 3, 2], [2, 3, 3], [0, 0, 0], [1, 1, 1], False
    check_loops(lambda g, x, at: [torch.ops.aten.max_pool3d_with_indices_backward(g, x, *options, at)], g, x, indices)
    options = [2, 3, 2], [2, 3, 3], [0, 0, 0], False, True, None
    check_loops(lambda g, x: [torch.ops.aten.avg_pool3d_backward(g, x, *options)], g, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "last"])
@pytest.mark.parametrize("name", POOLS)
def test_compiled(name, last, dtype):
    """Results and gradients are as near to float64 as eager's, except for the order of sums."""
    fn, x = POOLS[name], torch.randn(X, dtype=dtype)
    x = (x.contiguous(memory_format=torch.channels_last_3d) if last else x).requires_grad_()
    wide = x.detach().double().requires_grad_()
    out, eager, exact = pyframe.compile(fn, options=SETTINGS)(x), fn(x), fn(wide)
    g = torch.randn_like(eager)
    pairs = [(out, eager, exact)]
    pairs.append(tuple(torch.autograd.grad(*each)[0] for each in ((out, x, g), (eager, x, g), (exact, wide, g.double()))))
    for got, expected, reference in pairs:
        assert got.stride() == expected.stride() and got.dtype == expected.dtype
        assert (got - reference).abs().max() <= 2 * (expected - reference).abs().max() + 1e-6


@pytest.mark.parametrize("name", ["mean", "max", "parts", "large parts of images"])
def test_half_precision(name):
    """Eager has no kernels for some of these: then a compiled call raises, too."""
    x = torch.randn(X, dtype=torch.bfloat16)
    try:
        expected = POOLS[name](x)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            pyframe.compile(POOLS[name], options=SETTINGS)(x)
    else:
        torch.testing.assert_close(pyframe.compile(POOLS[name], options=SETTINGS)(x), expected)
