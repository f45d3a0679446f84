"""How a replaced frame reads the inputs of its graph: what several are read from once, no Module.__getattr__."""

import torch
from torch import nn

import pyframe


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.a(x).relu())


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(5))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return {"x": x}  # more than the graph's results, so that a frame has to run


def test_module_tables_are_read_directly(monkeypatch):
    model, x = Deep(), torch.randn(2, 4)
    fast = pyframe.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(fast(x), model(x))
    names = []
    original = nn.Module.__getattr__
    monkeypatch.setattr(nn.Module, "__getattr__", lambda self, name: names.append(name) or original(self, name))
    fast(x)
    assert "weight" not in names and "layers" not in names


def test_new_parameters_are_seen():
    model, x = Deep(), torch.randn(2, 4)
    fast = pyframe.compile(model, backend="eager", fullgraph=True)
    fast(x)
    with torch.no_grad():
        model.layers[3].a.weight.mul_(2)
        model.layers[1].b = nn.Linear(4, 4)
        model.layers[2].a.bias = nn.Parameter(torch.randn(4))
    torch.testing.assert_close(fast(x), model(x))
