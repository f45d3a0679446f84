"""A break in a method of a module that the trace creates."""

from __future__ import annotations

import torch
from torch import nn

import pyframe


class Noted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.inner.weight.data.fill_(0.5)
        self.names = len(dir(self))  # nn.Module.__dir__ calls dir(), which breaks in code of torch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.names


def program(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return Noted()(x)


def test_a_break_in_code_of_torch() -> None:
    x = torch.ones(2, 3)
    torch.testing.assert_close(pyframe.compile(program, backend="eager")(x), program(x))

