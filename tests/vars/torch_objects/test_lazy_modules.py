"""Lazy modules: their first captured call creates the parameters that eager creates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pyframe
from pyframe.testing import CompileCounter


class LazyScale(nn.modules.lazy.LazyModuleMixin, nn.Module):
    """Creates its parameter from the values of the input."""

    def initialize_parameters(self, x):
        with torch.no_grad():
            self.scale = nn.Parameter(x * 3)

    def forward(self, x):
        return x * self.scale


MODULES = {
    "one": lambda: nn.LazyLinear(4),
    "several": lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2)),
    "of the program": LazyScale,
}


@pytest.mark.parametrize("name", MODULES)
def test_captured_without_a_break(name):
    x = torch.arange(6.0).reshape(2, 3)
    torch.manual_seed(0)
    eager = MODULES[name]()
    expected = [eager(x), eager(x), torch.rand(2)]
    torch.manual_seed(0)
    counter = CompileCounter()
    compiled = pyframe.compile(MODULES[name](), backend=counter, fullgraph=True)
    torch.testing.assert_close([compiled(x), compiled(x), torch.rand(2)], expected)
    assert counter.frame_count == 1


@pytest.mark.parametrize("between", [nn.Dropout(), nn.Tanh()])
def test_what_draws_random_numbers_before_the_call_runs_before_it(between):
    x = torch.ones(2, 3)

    def results(wrap):
        torch.manual_seed(0)
        module = wrap(nn.Sequential(nn.LazyLinear(4), between, nn.LazyLinear(2)))
        return [module(x), module(x)]

    torch.testing.assert_close(results(lambda m: pyframe.compile(m, backend="eager")), results(lambda m: m))


def test_an_input_that_the_program_computes():
    module = LazyScale()
    compiled = pyframe.compile(lambda x: module(x + 1), backend="eager")
    torch.testing.assert_close(compiled(torch.ones(2, 3)), torch.full((2, 3), 12.0))
    norm = nn.LazyBatchNorm1d()
    captured = pyframe.compile(lambda x: norm(x + 1), backend="eager", fullgraph=True)
    torch.testing.assert_close(captured(torch.ones(2, 3)), torch.zeros(2, 3))
