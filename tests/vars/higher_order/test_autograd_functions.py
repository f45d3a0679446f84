"""Calls of `autograd.Function` that autograd records: what their functions read and write besides their arguments."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyframe

BACKENDS = pytest.mark.parametrize("backend", ["eager", "inductor"])
Calls = list[tuple[Any, ...]]


def x_with_gradient() -> torch.Tensor:
    return (torch.arange(6.0).reshape(2, 3) + 0.5).requires_grad_()


def scaled_by(scale: Callable[[], Any]) -> type[torch.autograd.Function]:
    """A function that multiplies by what `scale` returns, in its forward and in its backward."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * scale()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * scale()

    return Scaled


class TimesThreeInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return module(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.module.weight, None


def results_and_gradients(build: Callable[[], Callable[..., Any]], wrap: Callable[..., Any]) -> list[Any]:
    """What two calls of the program return, and the gradients of their argument."""
    torch.manual_seed(0)
    program = wrap(build())
    found = []
    for _ in range(2):
        x = x_with_gradient()
        result = program(x)
        result.sum().backward()
        found.append((result.detach(), x.grad))
    return found


def reads_a_tensor():
    weight = torch.full((3,), 2.0)
    function = scaled_by(lambda: weight)
    return lambda x: function.apply(x).sin()


def reads_a_tensor_that_the_graph_writes():
    weight = torch.full((3,), 2.0)
    function = scaled_by(lambda: weight)

    def program(x):
        weight.mul_(3)
        return (function.apply(x) * 2).sin()

    return program


def writes_its_argument():
    return lambda x: TimesThreeInPlace.apply(x * 2).sin()


def writes_its_argument_and_drops_the_result():
    def program(x):
        y = x * 2
        TimesThreeInPlace.apply(y)
        return y.sin()

    return program


def takes_a_module():
    module = torch.nn.Linear(3, 3)
    return lambda x: Linear.apply(x, module).sin()


@BACKENDS
@pytest.mark.parametrize(
    "build",
    [
        reads_a_tensor, reads_a_tensor_that_the_graph_writes, writes_its_argument,
        writes_its_argument_and_drops_the_result, takes_a_module,
    ],
)  # fmt: skip
def test_captured_without_a_break(build, backend):
    expected = results_and_gradients(build, lambda fn: fn)
    found = results_and_gradients(build, lambda fn: pyframe.compile(fn, backend=backend, fullgraph=True))
    torch.testing.assert_close(found, expected)


def reads_an_object_changed_before():
    state = types.SimpleNamespace(scale=1)
    function = scaled_by(lambda: state.scale)

    def program(x):
        state.scale = state.scale + 4
        return function.apply(x)

    return program


def reads_a_list_changed_before():
    state = [1]
    function = scaled_by(lambda: state[0])

    def program(x):
        state[0] += 4
        return function.apply(x)

    return program


def reads_a_variable_changed_before():
    scale = 1

    def read():
        return scale

    function = scaled_by(read)

    def program(x):
        nonlocal scale
        scale += 4
        return function.apply(x)

    return program


def writes_a_tensor_of_outside():
    weight = torch.ones(3)

    def scale():
        return weight.add_(1)

    function = scaled_by(scale)
    return lambda x: function.apply(x).sin() + weight.clone()


@BACKENDS
@pytest.mark.parametrize(
    "build",
    [
        reads_an_object_changed_before, reads_a_list_changed_before, reads_a_variable_changed_before,
        writes_a_tensor_of_outside,
    ],
)  # fmt: skip
def test_as_in_eager(build, backend):
    """Changes of objects are made after the graph has run: a call that may read or make one is not in the graph."""
    expected = results_and_gradients(build, lambda fn: fn)
    found = results_and_gradients(build, lambda fn: pyframe.compile(fn, backend=backend))
    torch.testing.assert_close(found, expected)
