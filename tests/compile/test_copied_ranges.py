"""Equal ranges of an ATen graph: of many, a few are lowered and scheduled. The result is as if each had been."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pyframe
from inductor.codegen.plan import codegen
from inductor.ir.printer import print_graph
from inductor.ir.renamed import RenamedBody
from inductor.lower import repeated
from inductor.schedule import print_schedule, schedule
from tests.compile.test_repeated_layers import Block, compiled
from tools import fake_gpu

LAYERS = 10


class Normed(nn.Module):
    """A layer whose result is normalized, as in BERT, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)

    def forward(self, x, mask):
        y = F.dropout(self.down(F.gelu(self.up(x))) + mask, 0.1, self.training)
        return self.norm(x + y)


class Counted(nn.Module):
    """A layer with statistics that training updates."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x, mask):
        return x + F.relu(self.norm(self.linear(x).transpose(1, 2)).transpose(1, 2)) * mask


class Network(nn.Module):
    """`change` makes one layer differ, in the middle."""

    def __init__(self, change=None, kind=Normed) -> None:
        super().__init__()
        self.layers = nn.ModuleList(kind() for _ in range(LAYERS))
        self.head = nn.Linear(8, 4)
        if change is not None:
            change(self.layers)

    def forward(self, x):
        mask = (x > 0).float() * 0.5
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


class AllUsed(Network):
    """The head uses the results of all layers, and each layer that of two before."""

    def forward(self, x):
        mask, hidden = (x > 0).float() * 0.5, [x, x]
        for layer in self.layers:
            hidden.append(layer(hidden[-1] + hidden[-2], mask))
        return self.head(torch.stack(hidden).mean(0)), hidden[4]


class Far(Network):
    """Each layer uses the results of the three before, and the end uses that of a layer in the middle."""

    def forward(self, x):
        mask, hidden = (x > 0).float() * 0.5, [x, x, x]
        for layer in self.layers:
            hidden.append(layer(hidden[-1] + hidden[-3].sin(), mask))
        return self.head(hidden[-1] * hidden[6]).sin()


def tie(layers):
    layers[5].up.weight = layers[2].up.weight


def tie_neighbours(layers):
    layers[6].up.weight = layers[5].up.weight


def stride(layers):
    layers[5].up.weight = nn.Parameter(layers[5].up.weight.detach().t().contiguous().t())


def constant(layers):
    layers[5].norm.eps = 1e-3


def all_layers_in_one(layers):
    for layer in layers[1:]:
        layer.up, layer.down, layer.norm = layers[0].up, layers[0].down, layers[0].norm


CHANGES = {
    change.__name__ if change else "equal": change
    for change in (None, tie, tie_neighbours, stride, constant, all_layers_in_one)
}


@pytest.fixture
def one_by_one(monkeypatch):
    return lambda: monkeypatch.setattr(repeated, "enabled", False)


def copied_bodies(graph):
    return sum(isinstance(getattr(buffer, "body", None), RenamedBody) for buffer in graph.buffers)


def for_gpu(model, x, training):
    """The loop IR, schedules, plans and sources of a network as for a GPU, and how many loops were copied."""
    found, copied = [], []

    def backend(gm, inputs):
        graphs = fake_gpu.lowered_training(gm, inputs) if training else [fake_gpu.lowered_inference(gm, inputs)]
        for graph in graphs:
            loops = print_graph(graph)
            origins = [(buffer.name, [node.name for node in buffer.origins]) for buffer in graph.buffers]
            groups = schedule(graph)
            source, spec = codegen(groups, graph, training=training)
            found.append((loops, origins, print_schedule(groups), repr(spec), source.texts(), repr(source.kernels)))
            copied.append(copied_bodies(graph))
        return gm.forward

    pyframe.compile(model, backend=backend)(x)
    assert found
    return found, copied


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_same_for_a_gpu(change, training, one_by_one):
    torch.manual_seed(0)
    copied = check_for_gpu(Network(change), training, one_by_one)
    if change is None:
        assert all(copied)


def check_for_gpu(model, training, one_by_one):
    """That a network is compiled as if each layer were lowered; returns how many loops were copied."""
    model, x = model.train(training).requires_grad_(training), torch.randn(2, 4, 8)
    found, copied = for_gpu(model, x, training)
    one_by_one()
    expected, none = for_gpu(model, x, training)
    assert found == expected
    assert not any(none)
    return copied


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("make", [AllUsed, Far, lambda: Network(kind=Counted)], ids=["all_used", "far", "counted"])
def test_values_that_are_used_elsewhere(make, training, one_by_one):
    torch.manual_seed(0)
    check_for_gpu(make(), training, one_by_one)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("make", [Network, lambda: nn.Sequential(*(Block(16, 2) for _ in range(LAYERS)))])
def test_the_same_on_the_cpu_and_results_of_eager(make, training, one_by_one):
    torch.manual_seed(0)
    model = make().train(training).requires_grad_(training)
    x = torch.randn(2, 6, 8 if isinstance(model, Network) else 16)
    alone = copy.deepcopy(model)
    found, results = compiled(model, x, training)
    one_by_one()
    expected, _ = compiled(alone, x, training)
    assert found == expected
    torch.manual_seed(1)
    y = model(x)
    wanted = [y.detach(), *(torch.autograd.grad(y.square().sum(), list(model.parameters())) if training else ())]
    for result, want in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, want, rtol=1e-3, atol=1e-4)


def test_varying_sizes():
    torch.manual_seed(0)
    model = Network().eval()
    call = pyframe.compile(model)
    for rows in (3, 5, 7):
        x = torch.randn(2, rows, 8)
        torch.testing.assert_close(call(x), model(x))
