"""Tensors in memory that are joined for one reader: its loops read the parts on a GPU, without a copy of them."""

import pytest
import torch
from fake_gpu import on_gpu
from op_samples import lowered

from inductor.ir.buffer import ExternKernel
from inductor.schedule import schedule

PARTS = [torch.randn(2, 3, 4, 5) for _ in range(3)]


def groups(fn, gpu=True, parts=PARTS):
    """How many kernels and calls of ATen a program of three tensors needs."""
    found = schedule(lowered(fn, *parts, prepare=on_gpu if gpu else lambda gm: gm))
    calls = sum(isinstance(group, ExternKernel) for group in found)
    return len(found) - calls, calls


def rows(*parts):
    """As the gradients of query, key and value are joined for the product with their common weight."""
    return torch.stack(parts).permute(1, 3, 0, 2, 4).reshape(8, 45)


@pytest.mark.parametrize(
    "fn",
    [rows, lambda *parts: torch.cat(parts, 1).sin(), lambda *parts: torch.cat(parts, -1).flatten(1).sum(1)],
    ids=["gradients of attention", "elementwise", "sum"],
)
def test_one_reader_in_loops(fn):
    assert groups(fn) == (1, 0)


@pytest.mark.parametrize(
    "fn",
    [lambda *parts: torch.cat(parts), lambda *parts: torch.cat(parts, 1).flatten(1) @ torch.ones(180, 2),
     lambda *parts: (joined := torch.cat(parts), joined.sin())],
    ids=["result", "product", "two readers"],
)  # fmt: skip
def test_what_has_to_be_in_memory_is_a_call(fn):
    assert groups(fn)[1] >= 1


def test_on_the_cpu():
    """Loops read short parts; ATen copies long ones."""
    assert groups(rows, gpu=False) == (1, 0)
    long = [torch.randn(2, 3, 40, 500) for _ in PARTS]
    assert groups(lambda *parts: torch.cat(parts, 1).sin(), gpu=False, parts=long) == (1, 1)
