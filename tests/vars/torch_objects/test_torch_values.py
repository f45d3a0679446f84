"""Torch's own values in a traced program: modes, modules whose attributes change, containers of modules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe.metrics import counters


def agree(fn: Callable[..., Any], *args: Any, breaks: int = 0) -> None:
    """A miss and a hit give what eager gives, leave the arguments and grad mode as eager does, in so many breaks."""
    pyframe.reset()
    compiled = pyframe.compile(fn, backend="eager")
    expected_args = copy.deepcopy(args)
    expected = fn(*expected_args)
    mode = torch.is_grad_enabled()
    for _ in range(2):
        torch.set_grad_enabled(True)
        got_args = copy.deepcopy(args)
        torch.testing.assert_close(compiled(*got_args), expected, rtol=0, atol=0)
        for got, want in zip(got_args, expected_args, strict=True):
            if isinstance(got, nn.Module):
                got, want = dict(got.state_dict()), dict(want.state_dict())
            torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert torch.is_grad_enabled() == mode
    assert sum(counters["graph_breaks"].values()) == breaks, counters["graph_breaks"]


def leaves_grad_off(x):
    torch.set_grad_enabled(False)
    return x * 2


def nested_grad_modes(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
        with torch.set_grad_enabled(False):
            w = x * 4
    return y.requires_grad, z.requires_grad, w.requires_grad, (x * 5).requires_grad


def switched_inside_context(x):
    with torch.no_grad():
        torch.set_grad_enabled(True)
        y = x * 2
        torch.set_grad_enabled(False)
    return y.requires_grad, (x * 2).requires_grad


@torch.no_grad()
def _decorated(x):
    return x * 2


def calls_decorated(x):
    return _decorated(x).requires_grad, (x + 1).requires_grad


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = x @ x
    return y.dtype.itemsize, z.dtype.itemsize, (x @ x).dtype.itemsize, y


@pytest.mark.parametrize(
    "fn", [leaves_grad_off, nested_grad_modes, switched_inside_context, calls_decorated, autocast]
)
def test_modes_are_traced_through(fn):
    agree(fn, torch.ones(3, 3, requires_grad=True))


def test_break_inside_autocast_keeps_the_mode():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            pyframe.graph_break()
            z = x @ x
        return y.dtype, z.dtype, (x @ x).dtype

    agree_breaks = pyframe.compile(fn, backend="eager")
    x = torch.ones(2, 2)
    assert agree_breaks(x) == fn(x) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert not torch.is_autocast_enabled("cpu")


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.5 + x.mean(0) * 0.5
        self.count.add_(1)
        return x - self.mean * self.calls, dict(self.named_buffers())["mean"]


def test_attributes_and_buffers_assigned_in_forward():
    def fn(module, x):
        return module(x), module.calls

    agree(fn, Stateful(), torch.arange(6.0).reshape(2, 3))


def test_eval_called_inside():
    def fn(module, x):
        module.eval()
        return module(x), module.training, module[1].training

    agree(fn, nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9)), torch.ones(2, 3))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.BatchNorm1d(6), (4, 6)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()), (1, 3, 8, 8)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), (2, 3, 8)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_library_modules_are_one_graph(module, shape):
    agree(lambda m, x: m(x), module, torch.randn(shape))
    assert counters["graphs"] == 1


def test_module_containers():
    def fn(layers, named, x):
        for index, layer in enumerate(layers[1:]):
            x = layer(x) * (index + 1)
        for name, layer in named.items():
            x = layer(x) + len(name)
        return x, "a" in named, len(layers)

    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    agree(fn, layers, nn.ModuleDict({"a": nn.Linear(4, 4), "bb": nn.ReLU()}), torch.ones(2, 4))


def test_method_of_c_on_an_instance_breaks_and_is_right():
    class Holder(nn.Module):
        def forward(self, x):
            return x + 1, self.__sizeof__() > 0

    module, x = Holder(), torch.ones(2)
    got = pyframe.compile(lambda m, t: m(t), backend="eager")(module, x)
    assert torch.equal(got[0], x + 1) and got[1] is True


def test_recurrent_modules_follow_their_weak_references():
    module = nn.LSTM(3, 4).requires_grad_(False)
    agree(lambda m, x: m(x)[0], module, torch.randn(2, 1, 3))
    assert counters["graphs"] == 1


def test_size_made_from_an_iterable():
    agree(lambda x: (torch.zeros(torch.Size([2, len(x)])), tuple(torch.Size([1]) + x.shape)), torch.ones(3))


def test_a_transpose_in_place_is_left_to_python():
    def fn(x):
        x.t_()
        return x + 1

    x = torch.arange(6.0).reshape(2, 3)
    got = pyframe.compile(fn, backend="eager")(x)
    assert x.shape == (3, 2) and torch.equal(got, x + 1)
