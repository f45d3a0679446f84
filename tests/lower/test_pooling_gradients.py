"""Gradients of pooling, and positions of greatest elements, as loops in the interpreter of the loop IR."""

import math

import pytest
import torch
from op_samples import lowered

from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph
from inductor.lower import pooling

aten = torch.ops.aten
LAYOUTS = {"channels last": torch.channels_last, "contiguous": torch.contiguous_format}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(pooling, "on_gpu", lambda val: True)


def check(fn, *args, calls=0):
    graph = lowered(fn, *args)
    assert sum(isinstance(b, ExternKernel) for b in graph.buffers) == calls
    want = fn(*args)
    torch.testing.assert_close(run_graph(graph, list(args)), list(want), rtol=1e-5, atol=1e-5, equal_nan=True)


# (kernel, stride, padding, dilation, ceil_mode)
MAX = [
    (3, 2, 1, 1, False), (2, 2, 0, 1, False), (3, 2, 0, 1, True), (2, 1, 1, 2, False), ((3, 2), (2, 3), (1, 0), 1, True),
    (3, 3, 1, 1, False), (5, 1, 2, 1, False), (2, 3, 0, 2, False),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("numbers", MAX, ids=str)
def test_greatest(numbers, layout):
    kernel, stride, padding, dilation, ceil = numbers
    rest = [list(n) if isinstance(n, tuple) else [n, n] for n in (kernel, stride, padding, dilation)]
    x = torch.randint(-3, 3, (2, 3, 8, 7)).float().to(memory_format=layout)  # with ties
    x[0, 0, 2, 3] = x[0, 0, 3, 3] = math.nan
    x[1, 1], x[1, 2, :4] = -math.inf, -math.inf

    def fn(x):
        return aten.max_pool2d_with_indices(x, *rest, ceil)

    check(fn, x)
    values, positions = fn(x)
    grad = torch.randn(values.shape).to(memory_format=layout)
    check(lambda g, x, i: [aten.max_pool2d_with_indices_backward(g, x, *rest, ceil, i)], grad, x, positions)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    "numbers",
    [(2, 2, 0, False, True, None), (3, 2, 1, False, True, None), (3, 1, 1, True, False, 5), (3, 2, 1, False, False, None),
     (2, 3, 0, False, False, None), (2, 2, 0, True, True, None), (3, 2, 1, True, True, None), (3, 2, 1, True, False, None),
     (4, 3, 2, True, True, None), (4, 3, 2, True, False, None)],
    ids=str,
)  # fmt: skip
def test_mean(numbers, layout):
    kernel, stride, padding, *flags = numbers
    rest = [kernel] * 2, [stride] * 2, [padding] * 2, *flags
    x = torch.randn(2, 3, 8, 7).to(memory_format=layout)
    check(lambda x: [aten.avg_pool2d(x, *rest)], x)
    grad = torch.randn_like(aten.avg_pool2d(x, *rest))
    check(lambda g, x: [aten.avg_pool2d_backward(g, x, *rest)], grad, x)


def test_an_image_alone():
    x = torch.randn(3, 8, 7)
    check(lambda x: aten.max_pool2d_with_indices(x, [2, 2]), x)
