"""Padding by reflection and replication as loops on the CPU: in the interpreter of the loop IR, and compiled."""

import pytest
import torch
import torch.nn.functional as F
from op_samples import lowered

import pyframe
from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph

SETTINGS = {"measure": False}  # ATen might be faster
aten = torch.ops.aten
CASES = [
    ((2, 3, 40), (3, 5)), ((3, 40), (0, 7)), ((2, 3, 40), (-2, 3)), ((2, 3, 20, 37), (2, 1, 3, 4)),
    ((2, 3, 20, 37), (-1, 2, 0, -3)), ((3, 5, 18), (4, 4, 2, 0)), ((1, 2, 5, 6, 19), (2, 3, 1, 0, 4, 2)),
    ((2, 3, 4, 3), (2, 2, 1, 1)), ((2, 3, 40), (0, 0)),
]  # fmt: skip


def argument(size, dtype, last):
    x = torch.randn(size, dtype=dtype)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()]) if last and x.dim() in formats else x


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "last"])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_loops(case, mode, last):
    size, padding = case
    x = argument(size, torch.float32, last)
    fn = lambda x: [F.pad(x.sin(), padding, mode=mode) * 2]  # noqa: E731
    graph = lowered(fn, x)
    assert not any(isinstance(b, ExternKernel) for b in graph.buffers)
    torch.testing.assert_close(run_graph(graph, [x]), fn(x))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loops_of_the_gradient(case):
    size, padding = case
    x = torch.randn(size)
    g = torch.randn_like(F.pad(x, padding, mode="reflect"))
    backward = getattr(aten, f"reflection_pad{len(padding) // 2}d_backward")
    fn = lambda g, x: [backward(g, x, list(padding))]  # noqa: E731
    graph = lowered(fn, g, x)
    assert not any(isinstance(b, ExternKernel) for b in graph.buffers)
    torch.testing.assert_close(run_graph(graph, [g, x]), fn(g, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "last"])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled(case, mode, last, dtype):
    """Elements are copied. Gradients, which eager adds in their own dtype, are no farther from float64."""
    size, padding = case
    pad = lambda x: F.pad(x, padding, mode=mode)  # noqa: E731
    x = argument(size, dtype, last).requires_grad_()
    out, eager = pyframe.compile(pad, options=SETTINGS)(x), pad(x)
    assert torch.equal(out, eager) and out.stride() == eager.stride()
    g, wide = torch.randn_like(eager), x.detach().double().requires_grad_()
    exact = torch.autograd.grad(pad(wide), wide, g.double())[0]
    got, expected = (torch.autograd.grad(y, x, g)[0] for y in (out, eager))
    assert got.stride() == expected.stride() and got.dtype == dtype
    assert (got - exact).abs().max() <= 1.01 * (expected - exact).abs().max() + 1e-6


def test_sizes_that_vary():
    pad = lambda x: F.pad(x, (2, 3), mode="reflect")  # noqa: E731
    compiled = pyframe.compile(pad, options=SETTINGS)
    for n in (12, 17, 21):
        x = torch.randn(2, 3, n)
        assert torch.equal(compiled(x), pad(x))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_dtypes_that_eager_refuses(mode):
    x = torch.ones(1, 2, 9, dtype=torch.int64)
    pad = lambda x: F.pad(x, (2, 3), mode=mode)  # noqa: E731
    try:
        expected = pad(x)
    except Exception as error:
        with pytest.raises(type(error)):
            pyframe.compile(pad, options=SETTINGS)(x)
    else:
        assert torch.equal(pyframe.compile(pad, options=SETTINGS)(x), expected)
