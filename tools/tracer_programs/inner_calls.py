"""Programs whose graph breaks inside calls that are traced inline."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from .programs import program, x


def _pause(y: Any, k: Any = 2) -> Any:
    y = y.cos()
    print("paused")
    return y * k


@program
def break_two_inlined_calls_deep() -> Any:
    def g(y: Any) -> Any:
        return _pause(y.sin(), k=3).exp()

    return lambda a: g(a * 2) + a, [(x(grad=True),), (x(grad=True),)]


@program
def break_between_operators() -> Any:
    def g(y: Any) -> Any:
        y = y.sin()
        print("between")
        return y + 1

    return lambda a: g(a * 2) + a.exp(), [(x(),), (x(),)]


@program
def break_in_a_method() -> Any:
    class Base:
        def run(self, y: Any) -> Any:
            return _pause(y) * self.scale  # type: ignore[attr-defined]

    class Derived(Base):
        scale = 3

        def run(self, y: Any) -> Any:
            return super().run(y.sin()) + 1

    made = Derived()
    return lambda a: made.run(a * 2), [(x(),), (x(),)]


@program
def break_in_a_layer() -> Any:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, y: Any) -> Any:
            return _pause(self.layer(y)).relu()

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.out = Inner(), nn.Linear(4, 4)

        def forward(self, y: Any) -> Any:
            return self.out(self.inner(y * 2))

    return Outer(), [(x(2, 4),), (x(2, 4),)]


@program
def break_in_a_layer_with_hooks() -> Any:
    class Inner(nn.Module):
        def forward(self, y: Any) -> Any:
            return _pause(y)

    module = Inner()
    module.register_forward_hook(lambda m, args, out: out * 2)
    return lambda a: module(a + 1) + 1, [(x(),), (x(),)]


@program
def break_handled_by_the_caller() -> Any:
    def h(y: Any) -> Any:
        y = _pause(y)
        raise ValueError(str(y.shape))

    def g(y: Any) -> Any:
        try:
            return h(y.sin())
        except ValueError as error:
            return y, str(error)

    return lambda a: g(a * 2), [(x(),), (x(),)]


@program
def break_with_cells() -> Any:
    def f(a: Any) -> Any:
        n = 1

        def g(y: Any) -> Any:
            nonlocal n
            n += 1
            y = _pause(y, n)
            n += 1
            return y * n

        return g(a * 2), n

    return f, [(x(),), (x(),)]


@program
def break_in_a_partial() -> Any:
    held = functools.partial(_pause, k=5)

    def g(y: Any) -> Any:
        return held(y.sin())

    return lambda a: g(a), [(x(),), (x(),)]


@program
def break_in_a_branch_of_a_callee() -> Any:
    def g(y: Any) -> Any:
        if y.sum() > 0:
            return y.sin()
        return y.cos()

    return lambda a: g(a * 2) + g(a * 3), [(torch.ones(3),), (-torch.ones(3),)]


@program
def break_without_gradients() -> Any:
    def g(y: Any) -> Any:
        return _pause(y.sin())

    def f(a: Any) -> Any:
        with torch.no_grad():
            b = g(a * 2)
        return b + a

    return f, [(x(grad=True),), (x(grad=True),)]


@program
def break_in_recursion() -> Any:
    def g(y: Any, n: int) -> Any:
        return _pause(y) if n == 0 else g(y * 2, n - 1) + 1

    return lambda a: g(a, 4), [(x(),), (x(),)]


@program
def layers_that_select_elements() -> Any:
    class Select(nn.Module):
        def forward(self, y: Any) -> Any:
            return torch.where(y > 0, y, y[y > 0].sum())

    layers = nn.ModuleList([Select(), Select(), Select()])

    def f(a: Any) -> Any:
        for layer in layers:
            a = layer(a).sin()
        return a

    return f, [(x(),), (x(),)]
