"""Gradients of depthwise convolutions as loops, in the interpreter of the loop IR."""

import pytest
import torch
import torch.nn.functional as F
from op_samples import lowered

from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph
from inductor.lower import convolution

LAYOUTS = {"channels last": torch.channels_last, "contiguous": torch.contiguous_format}


def gradients(graph_of, x, w, grad, numbers, wanted=(True, True, True)):
    """The gradients by loops, and by autograd in float64."""
    stride, padding, dilation = numbers

    def fn(grad, x, w):
        rest = stride, padding, dilation, False, [0, 0], x.shape[1], list(wanted)
        return [g for g in torch.ops.aten.convolution_backward(grad, x, w, [w.shape[0]], *rest) if g is not None]

    return run_graph(graph_of(fn, grad, x, w), [grad, x, w])


def without_calls(fn, *args):
    graph = lowered(fn, *args)
    assert not any(isinstance(b, ExternKernel) for b in graph.buffers)
    return graph


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(convolution, "gradient_loops_pay", lambda val, weight, groups: weight[1] == 1)


# (taps, stride, padding, dilation, filters per channel)
SHAPES = [
    ((3, 3), (1, 1), (1, 1), (1, 1), 1), ((3, 3), (2, 2), (1, 1), (1, 1), 1), ((5, 5), (2, 2), (2, 2), (1, 1), 1),
    ((3, 2), (1, 2), (2, 0), (2, 1), 1), ((3, 3), (2, 2), (1, 2), (3, 2), 1), ((2, 2), (3, 3), (0, 0), (1, 1), 1),
    ((3, 3), (1, 1), (1, 1), (1, 1), 2), ((1, 1), (2, 2), (0, 0), (1, 1), 1), ((5, 4), (3, 2), (4, 1), (1, 1), 1),
    ((2, 2), (1, 1), (3, 3), (1, 1), 1),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_shapes(shape, layout):
    taps, *numbers, each = shape
    x = torch.randn(2, 3, 7, 6).to(memory_format=layout).requires_grad_()
    w, b = torch.randn(3 * each, 1, *taps, requires_grad=True), torch.zeros(3 * each, requires_grad=True)
    out = F.conv2d(x.double(), w.double(), b.double(), *numbers, 3)
    grad = torch.randn(out.shape).to(memory_format=layout)
    want = torch.autograd.grad(out, (x, w, b), grad.double())
    got = gradients(without_calls, x.detach(), w.detach(), grad, numbers)
    torch.testing.assert_close(got, list(want), rtol=1e-4, atol=1e-4)
    (only,) = gradients(without_calls, x.detach(), w.detach(), grad, numbers, [False, True, False])
    torch.testing.assert_close(only, want[1], rtol=1e-4, atol=1e-4)


def test_left_to_aten():
    x, w, grad = torch.randn(2, 4, 5, 5), torch.randn(4, 2, 3, 3), torch.randn(2, 4, 3, 3)

    def fn(grad, x, w):
        return torch.ops.aten.convolution_backward(grad, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2,
                                                   [True, True, False])[:2]  # fmt: skip

    assert any(isinstance(b, ExternKernel) for b in lowered(fn, grad, x, w).buffers)
