"""Backward passes of `autograd.Function`s that write to tensors which the program can see afterwards."""

from __future__ import annotations

import copy

import pytest
import torch

import pyframe


class CountsMaximum(torch.autograd.Function):
    """Its backward records the largest gradient in a tensor of the module, as scaling for low precision does."""

    @staticmethod
    def forward(ctx, x, record):
        ctx.record = record
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.record.copy_(grad.abs().max())
        return grad * 2, None


class WritesSavedInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (scale,) = ctx.saved_tensors
        scale.mul_(2)
        return grad * scale, None


class WritesSavedResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, _):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y.mul_(grad), None


class WritesGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, _):
        return x.exp()

    @staticmethod
    def backward(ctx, grad):
        return grad.mul_(3), None


@pytest.mark.parametrize("function", [CountsMaximum, WritesSavedInput, WritesSavedResult, WritesGradient])
@pytest.mark.filterwarnings("ignore:inductor. the graph of step .* the backward pass writes to:UserWarning")
def test_what_a_backward_pass_writes_is_visible(function):
    def step(x, other):
        return function.apply(x, other)

    def run(fn):
        x, other, grad = torch.arange(3.0).requires_grad_(), torch.ones(()), torch.full((3,), 5.0)
        y = fn(x, other)
        forward = y.detach().clone()
        y.backward(grad)
        return forward, y.detach(), x.grad, other, grad

    compiled = pyframe.compile(step)
    for _ in range(2):
        for got, want in zip(run(compiled), run(step), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore:inductor. the graph of forward .* the backward pass writes to:UserWarning")
def test_a_buffer_that_the_backward_pass_writes():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)
            self.register_buffer("record", torch.zeros(()))

        def forward(self, x):
            return CountsMaximum.apply(self.inner(x), self.record)

    eager = Scaled()
    module = copy.deepcopy(eager)
    for fn, of in ((eager, eager), (pyframe.compile(module), module)):
        (fn(torch.ones(2, 3)) * torch.arange(3.0)).sum().backward()
        assert of.record == 2


def test_writes_to_what_only_the_backward_pass_sees_stay_compiled(recwarn):
    class Reuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y * 1

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return y.mul_(grad)

    x = torch.arange(3.0).requires_grad_()
    y = pyframe.compile(lambda x: Reuses.apply(x))(x)
    y.backward(torch.full((3,), 5.0))
    assert torch.allclose(x.grad, x.detach().exp() * 5)
    assert not [w for w in recwarn if "ATen" in str(w.message)]
