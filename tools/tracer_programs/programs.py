"""What a program of this folder consists of, and how it is registered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch


@dataclasses.dataclass
class Program:
    """A function to compile, the arguments of each of its calls, and what else the calls may change.

    Tensors that require gradients are given new leaves for each system, because the arguments come from `make()`, which
    each system calls anew. `state()` returns what is compared after each call, beside the result, the exception and
    what is printed.
    """

    fn: Callable[..., Any]
    calls: list[tuple[Any, ...]]
    state: Callable[[], Any] = lambda: None


PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    """Registers `make`, which returns `(fn, calls)` or `(fn, calls, state)`."""

    def made() -> Program:
        torch.manual_seed(0)
        return Program(*make())

    name = make.__name__.strip("_")
    if name in PROGRAMS:
        raise ValueError(f"two programs are called {name}")
    PROGRAMS[name] = made
    return make


def x(*shape: int, grad: bool = False) -> torch.Tensor:
    """A tensor of random numbers, 4 by default."""
    return torch.randn(*(shape or (4,)), requires_grad=grad)
