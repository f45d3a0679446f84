"""Whole numbers that modules keep as 0-d buffers: what is computed of them decides branches and sizes, and is guarded."""

import pytest
import torch
from torch import nn

import pyframe
from pyframe.metrics import counters


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("left", torch.tensor(3))

    def forward(self, x):
        right = torch.ceil((x.shape[-1] - self.left) / 2).to(torch.int64) - 1
        if x.shape[-1] <= max(self.left, right):
            x = nn.functional.pad(x, (0, 5))
        return nn.functional.pad(x, (self.left, right)), torch.stack([self.left, right])


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls.add_(1)
        if self.calls > 2:
            return x * 2, self.calls + 0
        return x + 1, self.calls + 0


class WrittenByAView(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("flag", torch.tensor(0))

    def forward(self, x):
        self.flag.view(1)[0] = x.sum().long()
        if self.flag > 2:
            return x * 2, self.flag + 0
        return x + 1, self.flag + 0


def same(module, plain, fast, x):
    for ours, eager in zip(fast(x.clone()), plain(x.clone()), strict=True):
        assert torch.equal(ours, eager)
    for ours, eager in zip(module.buffers(), plain.buffers(), strict=True):
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_one_graph_while_they_stay(backend):
    module, plain = Padded(), Padded()
    fast = pyframe.compile(module, backend=backend)
    for _ in range(3):
        same(module, plain, fast, torch.randn(2, 8))
    assert counters["graphs"] == 1 and not counters["graph_breaks"]
    for left in (1, 2):
        module.left.fill_(left), plain.left.fill_(left)
        same(module, plain, fast, torch.randn(2, 8))
    assert counters["graph_breaks"]


@pytest.mark.parametrize("cls", [Counts, WrittenByAView])
def test_those_that_change_are_no_constants(cls):
    module, plain = cls(), cls()
    fast = pyframe.compile(module, backend="eager")
    for number in range(8):
        same(module, plain, fast, torch.full((2,), number / 2))
    assert counters["recompiles"] <= 4


def test_an_argument_is_no_constant():
    def fn(x, n):
        return x + 1 if n > 1 else x - 1

    fast = pyframe.compile(fn, backend="eager")
    for n in (0, 2, 1, 3):
        assert torch.equal(fast(torch.ones(2), torch.tensor(n)), fn(torch.ones(2), torch.tensor(n)))
    assert counters["graph_breaks"]["data-dependent-branch"] == 1
