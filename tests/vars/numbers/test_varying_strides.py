"""Strides that vary between calls while sizes may stay the same: as many graphs as torch.compile makes, and the values of
eager."""

from __future__ import annotations

import itertools

import pytest
import torch

import pyframe
from pyframe.testing import CompileCounter


def rows(*strides, n=4):
    """Tensors of n x 5 elements whose rows are so far apart."""
    return [torch.randn(n, stride)[:, :5] for stride in strides]


INPUTS = {
    "rows": lambda: rows(6, 7, 8, 9),
    "rows, and dense at last": lambda: rows(6, 7, 5, 9),
    "rows, and dense at first": lambda: rows(5, 7, 8, 9),
    "three dimensions": lambda: [torch.randn(3, 4, n)[:, :, :5] for n in (6, 7, 8, 9)],
    "outer dimension": lambda: [torch.randn(3, n, 5)[:, :4] for n in (6, 7, 8, 9)],
    "steps": lambda: [torch.randn(4, 5 * n)[:, ::n] for n in (2, 3, 4, 5)],
    "transposed, then steps": lambda: [
        torch.randn(4, 5), torch.randn(5, 4).t(), *(torch.randn(4, 5 * n)[:, ::n] for n in (2, 3))
    ],
    "orders of dimensions": lambda: [
        torch.randn([(3, 4, 5)[i] for i in order]).permute([order.index(i) for i in range(3)])
        for order in itertools.islice(itertools.permutations(range(3)), 4)
    ],
    "expanded": lambda: [torch.randn(4, 5), torch.randn(1, 5).expand(4, 5), torch.randn(4, 1).expand(4, 5), *rows(6)],
    "sizes, too": lambda: [x for n, stride in zip(range(4, 8), range(6, 10), strict=True) for x in rows(stride, n=n)],
    "one row": lambda: rows(6, 7, 8, n=1),
}  # fmt: skip


def sine(x):
    return (x * 2).sin()


def by_layout(x):
    return x.reshape(-1) if x.is_contiguous() else x.sum(0)


def of_stride(x):
    return x * x.stride(0) + x.storage_offset()


def products(x):
    return x.mT @ x.clone() + x.flatten(-2).sum()


def kept_order(x):
    return torch.empty_like(x).copy_(x), torch.zeros_like(x) + x


PROGRAMS = (sine, by_layout, of_stride, products, kept_order)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_as_many_graphs_as_torch_compile(program, inputs):
    counted = []
    for compile in (pyframe.compile, torch.compile):
        torch._dynamo.reset()
        torch.manual_seed(0)
        counter = CompileCounter()
        compiled = compile(program, backend=counter)
        for x in INPUTS[inputs]():
            torch.testing.assert_close(compiled(x), program(x))
        counted.append(counter.frame_count)
    ours, theirs = counted
    assert ours <= theirs


def steps(x):
    """The strides that say where elements are."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("inputs", INPUTS)
def test_compiled(program, inputs):
    compiled = pyframe.compile(program, options={"strict": True})
    for x in INPUTS[inputs]():
        expected, found = program(x), compiled(x)
        torch.testing.assert_close(found, expected)
        for a, b in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, expected)), strict=True):
            assert steps(a) == steps(b)


@pytest.mark.parametrize("inputs", ("rows", "rows, and dense at first", "steps", "sizes, too"))
def test_writes_and_gradients(inputs):
    def write(x):
        x.mul_(2).add_(1)
        return x.sin()

    compiled = pyframe.compile(write, options={"strict": True})
    trained = pyframe.compile(products, options={"strict": True})
    for x in INPUTS[inputs]():
        base = x.clone(memory_format=torch.preserve_format)
        whole = torch.randn(x.shape[0], x.stride(0))
        there, here = whole.clone(), whole.clone()
        step = x.stride(1)
        torch.testing.assert_close(compiled(there[:, : 5 * step : step]), write(here[:, : 5 * step : step]))
        torch.testing.assert_close(there, here)
        grads = []
        for fn in (trained, products):
            leaf = base.clone().as_strided(base.shape, base.stride()).requires_grad_()
            fn(leaf).cos().sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_static_sizes_when_asked_for():
    counter = CompileCounter()
    compiled = pyframe.compile(sine, backend=counter, dynamic=False)
    for x in rows(6, 7, 8):
        compiled(x)
    assert counter.frame_count == 3
