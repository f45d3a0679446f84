"""`isinstance` of tensors with `nn.Parameter` and `nn.Buffer`, whose metaclasses read attributes of the tensor."""

import torch
from torch import nn

import pyframe

KINDS = (nn.Parameter, nn.Buffer, nn.parameter.UninitializedBuffer, nn.parameter.UninitializedParameter, torch.Tensor)


def kinds(x):
    return [isinstance(x, kind) for kind in KINDS]


def created(x):
    return kinds(nn.Buffer(torch.ones(2))), kinds(nn.Parameter(torch.ones(2))), kinds(x + 1), x * 2


def flagged(x):
    y = x + 1
    y._is_param = True
    return kinds(y), x * 2


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(2))
        self.b = nn.Buffer(torch.ones(2))

    def forward(self, x):
        return kinds(self.p), kinds(self.b), kinds(x), x + self.p


def test_kinds_of_tensors_are_those_of_eager():
    for fn in (created, flagged, Module()):
        want = fn(torch.ones(2))
        compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
        for _ in range(2):
            assert compiled(torch.ones(2))[:-1] == want[:-1]


def test_the_kind_of_an_argument_is_guarded():
    def fn(x):
        return kinds(x), x * 2

    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    for make in (torch.ones, lambda n: nn.Parameter(torch.ones(n)), lambda n: nn.Buffer(torch.ones(n))) * 2:
        assert compiled(make(2))[0] == kinds(make(2))
