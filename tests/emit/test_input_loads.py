"""How a replaced frame reads the inputs of its graph: what several are read from once, no Module.__getattr__."""

import torch
from torch import nn

import pyframe
from pyframe import _C, shared_captures


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
    """A replaced `nn.Module.__getattr__` would be noticed, so that the code of the new frame is looked at instead."""
    roots, fresh_root = [], shared_captures.fresh_root
    monkeypatch.setattr(shared_captures, "fresh_root", lambda module: roots.append(fresh_root(module)) or roots[-1])
    model, x = Deep(), torch.randn(2, 4)
    fast = pyframe.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(fast(x), model(x))
    (entry,) = _C.entries(roots[0])
    assert not entry.code.co_names  # neither "weight" nor "layers" nor any other attribute is read by name


def test_new_parameters_are_seen():
    model, x = Deep(), torch.randn(2, 4)
    fast = pyframe.compile(model, backend="eager", fullgraph=True)
    fast(x)
    with torch.no_grad():
        model.layers[3].a.weight.mul_(2)
        model.layers[1].b = nn.Linear(4, 4)
        model.layers[2].a.bias = nn.Parameter(torch.randn(4))
    torch.testing.assert_close(fast(x), model(x))
