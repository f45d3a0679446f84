"""Branches on tensors that the program creates from constants: every way to write to them is seen."""

import operator

import pytest
import torch
from torch import fx
from torch.nn import functional as F

import pyframe
from inductor.fx_utils.writes import IN_PLACE_METHODS, may_write, writes_in_place

X = torch.ones(2)


def in_place_by_argument(c):
    F.threshold(c, 0.5, 7.0, inplace=True)


def in_place_by_position(c):
    F.threshold(c, 0.5, 7.0, True)


def method(c):
    c.add_(7)


def function(c):
    torch.fill_(c, 7)


def function_of_nn(c):
    torch._C._nn.hardtanh_(c, 7.0, 8.0)


def python_operator(c):
    c += 7


def method_of_operator(c):
    c.__iadd__(7)


def unbound_method(c):
    torch.Tensor.add_(c, 7)


def item(c):
    c[:] = 7


def out(c):
    torch.add(c, 7, out=c)


def view(c):
    c[1:].fill_(7)


def data(c):
    c.data.add_(7)


def storage(c):
    c.set_(torch.full((3,), 7.0))


def foreach(c):
    torch._foreach_add_([c], 7.0)


def running_statistics(c):
    F.batch_norm(torch.full((4, 3), 7.0), c, torch.zeros(3), training=True, momentum=0.9)


def renormalized(c):
    c.fill_(7)
    F.embedding(torch.tensor([0]), c.reshape(1, 3), max_norm=1.0)


WAYS = [
    in_place_by_argument, in_place_by_position, method, function, function_of_nn, python_operator, method_of_operator,
    unbound_method, item, out, view, data, storage, foreach, running_statistics, renormalized,
]  # fmt: skip


@pytest.mark.parametrize("write", WAYS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_writes_to_constants_are_seen(write, mode):
    def fn(x):
        c = torch.zeros(3)
        write(c)
        return x + 1 if c.sum() > 3 else x - 1

    with mode():
        torch.testing.assert_close(pyframe.compile(fn, backend="eager")(X), fn(X))


def test_writes_by_schema():
    written = ["add_", "resize_", "__iadd__", "__setitem__", "__idiv__", torch.relu_, torch._C._nn.hardtanh_,
               operator.iadd, torch.ops.aten.copy_, torch.ops.aten.copy_.default, torch._foreach_add_]  # fmt: skip
    unwritten = ["add", "__add__", "__and__", "size", "sort", torch.sort, torch.add, torch.ops.aten.add, torch.ops.aten.add.out,
                 operator.add, operator.not_, operator.getitem]  # fmt: skip
    assert all(map(writes_in_place, written))
    assert not any(map(writes_in_place, unwritten))
    assert all(map(writes_in_place, IN_PLACE_METHODS))


def test_writes_that_arguments_ask_for():
    graph = fx.Graph()
    x = graph.placeholder("x")
    assert may_write(graph.call_function(F.relu, (x, True)))
    assert may_write(graph.call_function(F.relu, (x,), {"inplace": True}))
    assert may_write(graph.call_function(torch.add, (x, 1), {"out": x}))
    assert may_write(graph.call_function(F.batch_norm, (x, x, x)))
    assert not may_write(graph.call_function(F.relu, (x,)))
    assert not may_write(graph.call_function(F.relu, (x,), {"inplace": False}))
    assert not may_write(graph.call_function(torch.add, (x, 1), {"out": None}))
