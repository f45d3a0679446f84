"""How results lie in memory is found from one of several equal layers, and is what a run of all of them finds."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import pyframe
from inductor.aot import functionalize, regions
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import GraphRun, to_aten
from tests.aot.test_trace_memo import described

LAYERS = 6


class Layer(nn.Module):
    """`form`: how the result lies in memory."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.up, self.down = form, nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.down(torch.relu(self.up(x.sin().cos().tanh().exp().sigmoid())))
        return {
            "new": lambda: y,
            "transposed": lambda: y.transpose(0, 1).contiguous().transpose(0, 1),
            "view": lambda: y.view(-1).view(4, 4, 8),
            "part": lambda: torch.cat([y, y], -1)[..., 8:],
            "strided": lambda: torch.empty_like(y.transpose(0, 1)).transpose(0, 1).contiguous() + y,
            "same": lambda: x,
            "view of the operand": lambda: x.view(-1).view(4, 4, 8),
        }[self.form]()  # fmt: skip


class States(nn.Module):
    """Returns the results of all layers, and views of the last one and of the input."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return *states, states[-1].transpose(0, 1), states[-2].detach(), x[1:]


def captured(model: nn.Module, *args: torch.Tensor) -> tuple[Any, list[Any]]:
    found: list[Any] = []

    def backend(gm: Any, inputs: list[Any]) -> Any:
        found.append((gm, inputs))
        return gm.forward

    with torch.no_grad():
        pyframe.compile(model, backend=backend, fullgraph=True)(*args)
    return found[0]


FORMS = ("new", "transposed", "view", "part", "strided", "same", "view of the operand")
SHORTENED = ("new", "strided")


@pytest.mark.parametrize("form", FORMS)
def test_results_lie_in_memory_as_those_of_all_layers(form: str) -> None:
    gm, inputs = captured(States([Layer(form) for _ in range(LAYERS)]).eval().requires_grad_(False), torch.ones(4, 4, 8))
    counts = []

    def aten() -> Any:
        runs = []

        class Counting(GraphRun):
            def run_node(self, n: Any) -> Any:
                runs.append(n)
                return super().run_node(n)

        with mock.patch.object(functionalize, "GraphRun", Counting), torch.no_grad():
            found = to_aten(gm, inputs, decompositions())
        counts.append(len(runs))
        return found

    once = aten()
    with mock.patch.object(regions, "enabled", False):
        each = aten()
    assert described(once.graph) == described(each.graph)
    for field in dataclasses.fields(once):
        if field.name not in ("graph", "attributes"):
            assert getattr(once, field.name) == getattr(each, field.name), field.name
    if form in SHORTENED:
        assert counts[0] < 0.7 * counts[1]
