"""Gradients of the weights of depthwise convolutions by kernels that go down the rows: values under Triton's interpreter,
and which convolutions have them."""

import pytest
import torch
import torch.nn.functional as F
from fake_gpu import on_gpu
from op_samples import lowered
from triton_support import Runner

from inductor.codegen import codegen
from inductor.codegen.triton import TritonSource, depthwise_gradient
from inductor.ir.buffer import ExternKernel
from inductor.runtime import triton_build
from inductor.schedule import Group
from inductor.schedule.depthwise_gradient import DepthwiseGradient, with_depthwise_gradients


def gradient(padding, stride=1, dilation=1):
    def fn(grad, x, w):
        numbers = [stride] * 2, list(padding), [dilation] * 2, False, [0, 0], x.shape[1], [False, True, False]
        return [torch.ops.aten.convolution_backward(grad, x, w, None, *numbers)[1]]

    return fn


def runner_of(fn, *args):
    runner = Runner(fn, *args, graph=lowered(fn, *args, prepare=on_gpu))
    runner.steps = with_depthwise_gradients(runner.steps)
    runner.source = TritonSource(runner.source.gpu)
    runner.launches = {id(g): runner.source.group(g, runner.dtypes) for g in runner.steps if isinstance(g, Group)}
    return runner


def problem(size, taps, padding, dtype=torch.float32, stride=1, dilation=1):
    images, channels, height, width = size
    x = torch.randn(size, dtype=dtype).to(memory_format=torch.channels_last)
    w = torch.randn(channels, 1, *taps, dtype=dtype)
    out = F.conv2d(x, w, None, stride, padding, dilation, channels)
    grad = torch.randn(out.shape, dtype=dtype).to(memory_format=torch.channels_last)
    return grad, x, w


# (images of channels x height x width, taps, padding)
SHAPES = {
    "3x3": ((2, 16, 9, 7), (3, 3), (1, 1)), "5x5": ((2, 24, 9, 8), (5, 5), (2, 2)), "no padding": ((3, 16, 8, 9), (3, 3), (0, 0)),
    "taps and padding that differ": ((1, 40, 12, 5), (2, 4), (2, 1)), "more padding than taps": ((1, 16, 3, 4), (2, 2), (3, 3)),
    "a row": ((2, 16, 1, 30), (1, 3), (0, 1)), "a column": ((4, 16, 40, 1), (3, 1), (1, 0)),
    "few channels": ((2, 5, 8, 8), (3, 3), (1, 1)), "lanes that do not fill a block": ((1, 72, 20, 3), (3, 3), (1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("waves", [0, 8], ids=["one program", "many"])
def test_shapes(shape, waves, monkeypatch):
    monkeypatch.setattr(depthwise_gradient, "WAVES", waves)
    monkeypatch.setattr(depthwise_gradient, "WAVES_OF_MANY", waves)
    size, taps, padding = shape
    check(*problem(size, taps, padding), padding)


def check(grad, x, w, padding, tolerance=1e-4):
    fn = gradient(padding)
    runner = runner_of(fn, grad, x, w)
    assert [type(step) for step in runner.steps] == [DepthwiseGradient]
    (got,) = runner.run(grad, x, w)
    (want,) = fn(grad.double(), x.double(), w.double())
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)
    assert got.stride() == w.stride() and got.dtype == w.dtype
    codegen(runner.steps, runner.graph)  # the plan can be made
    return runner


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    check(*problem((2, 32, 20, 20), (3, 3), (1, 1), dtype), (1, 1), 2e-2)


def test_kernels_compile():
    runner = check(*problem((1, 64, 9, 9), (5, 5), (2, 2), torch.bfloat16), (2, 2), 2e-2)
    assert all(cubin.data for cubin in triton_build.build_all(runner.source.kernels, 90))


@pytest.mark.parametrize("numbers", [{"stride": 2}, {"dilation": 2}], ids=str)
def test_other_convolutions_are_loops(numbers):
    grad, x, w = problem((2, 16, 9, 7), (3, 3), (1, 1), **numbers)
    steps = runner_of(gradient((1, 1), **numbers), grad, x, w).steps
    assert not any(isinstance(step, ExternKernel | DepthwiseGradient) for step in steps)


def test_filters_are_not_stored_again():
    """As those that autocast converts."""
    grad, x, w = problem((2, 16, 9, 7), (3, 3), (1, 1))

    def fn(grad, x, w):
        rest = None, [1, 1], [1, 1], [1, 1], False, [0, 0], 16, [True, True, False]
        return torch.ops.aten.convolution_backward(grad, x, w * 2, *rest)[:2]

    runner = runner_of(fn, grad, x, w)
    assert len(runner.steps) == 3  # the filters by tap, and the gradients of input and weight
    for got, want in zip(runner.run(grad, x, w), fn(grad, x, w)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_all_gradients():
    grad, x, w = problem((2, 16, 9, 7), (3, 3), (1, 1))

    def fn(grad, x, w):
        return torch.ops.aten.convolution_backward(grad, x, w, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 16, [True] * 3)

    runner = runner_of(fn, grad, x, w)
    assert not any(isinstance(step, ExternKernel) for step in runner.steps)
    for got, want in zip(runner.run(grad, x, w), fn(grad, x, w)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
