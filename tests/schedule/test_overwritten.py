"""Kernels that write to inputs which they also read."""

import pytest
import torch

import pyframe
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.lower import lower_graph
from inductor.schedule import schedule


def compiled(fn, *args):
    """Compares a call of the compiled `fn`, which writes to its arguments, with eager. Returns the scheduled groups."""
    found = []

    def backend(gm, inputs):
        aten = to_aten(gm, inputs, decompositions())
        found.extend(schedule(lower_graph(aten.graph, aten.shared, aten.uncounted)))
        return gm.forward

    copies = [[x.clone() for x in args] for _ in range(3)]
    pyframe.compile(fn, backend=backend)(*copies[0])
    want, got = fn(*copies[1]), pyframe.compile(fn)(*copies[2])
    torch.testing.assert_close(copies[2], copies[1])
    torch.testing.assert_close(got, want)
    return found


def step(p, grad, mean):
    new = mean * 0.9 + grad * 0.1
    p.add_(new, alpha=-0.5)
    mean.copy_(new)
    grad.mul_(0.5)


def exchange(x, y, z):
    a, b, c = y + 1, z + 2, x + 3
    x.copy_(a), y.copy_(b), z.copy_(c)


@pytest.mark.parametrize("fn", [step, exchange])
@pytest.mark.parametrize("size", [(5, 40), (3, 17), ()])
def test_updates_of_several_inputs_are_one_kernel(fn, size):
    assert len(compiled(fn, *(torch.randn(size) for _ in range(3)))) == 1


def test_inputs_with_other_strides():
    compiled(exchange, torch.randn(33, 40), torch.randn(40, 33).t(), torch.randn(33, 80)[:, ::2])


@pytest.mark.parametrize("length", [40, 100000])
def test_a_row_that_is_overwritten_in_place_is_not_read_again(length):
    def scale(x):
        x[0].mul_(2.0)
        return x[0].softmax(-1)

    compiled(scale, torch.randn(2, length))


def test_an_overwritten_row_that_is_reduced():
    def scale(x):
        y = x * 2
        total = (y - y.amax(-1, keepdim=True)).exp().sum(-1)
        x.copy_(y)
        return total

    compiled(scale, torch.randn(3, 70000))
