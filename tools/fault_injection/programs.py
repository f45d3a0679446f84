"""The programs into which faults are injected: inference, a training step, and a graph break inside `try` and `with`.

A program is a function without parameters that returns `(compiled, call, names)`; `call(fn)` returns the results to
compare, for the compiled function and for the eager one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import pyframe

Program = tuple[Any, Callable[[Any], Any]]


def inference() -> Program:
    """A plain function without gradients."""
    x, y = torch.linspace(-1, 1, 20).reshape(4, 5), torch.linspace(0, 2, 25).reshape(5, 5)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = (x @ y).relu()
        return z.softmax(-1) + y.sum()

    return program, lambda fn: fn(x, y)


class Net(nn.Module):
    """Two linear layers and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).tanh()).pow(2).mean()


def training() -> Program:
    """A step of training: loss and gradients."""
    torch.manual_seed(0)
    net, x = Net(), torch.linspace(-1, 1, 12).reshape(3, 4)

    def call(fn: Any) -> Any:
        net.zero_grad()
        loss = fn(x)
        loss.backward()
        return loss.detach(), [p.grad.clone() for p in net.parameters() if p.grad is not None]

    return net, call


def broken() -> Program:
    """A graph break inside `with` and `try`."""
    x = torch.linspace(-1, 1, 6, requires_grad=True)

    def program(x: torch.Tensor) -> Any:
        seen = []
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            try:
                y = x.sin() * 2
                pyframe.graph_break()
                y = y + 1
            finally:
                seen.append("left")
        return (y.sum() * x).detach(), seen

    return program, lambda fn: fn(x)


PROGRAMS: dict[str, Callable[[], Program]] = {"inference": inference, "training": training, "break": broken}
