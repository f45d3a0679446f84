"""Classes that get a special method after a capture has relied on its absence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyframe


def outcome(program: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    try:
        return program(x)[1]
    except TypeError as error:
        return str(error)


def add_of_subclass(cls: type) -> Callable[[torch.Tensor], Any]:
    class Base:
        def __add__(self, other: Any) -> str:
            return "left"

    one, other = Base(), type("Derived", (Base, cls), {})()
    return lambda x: (x + 1, one + other)


def caught(operation: Callable[[Any], Any]) -> Callable[[type], Callable[[torch.Tensor], Any]]:
    def make(cls: type) -> Callable[[torch.Tensor], Any]:
        value = cls()

        def program(x: torch.Tensor) -> Any:
            try:
                return x + 1, operation(value)
            except TypeError:
                return x + 1, "no"

        return program

    return make


@pytest.mark.parametrize(("make", "name", "method"), [
    (add_of_subclass, "__radd__", lambda self, other: "right"),
    (caught(lambda value: [1, 2][value]), "__index__", lambda self: 1),
    (caught(lambda value: "ab" * value), "__index__", lambda self: 2),
    (caught(lambda value: dict([value])), "__iter__", lambda self: iter(("key", 1))),
    (caught(lambda value: {**value}), "keys", lambda self: ()),
])  # fmt: skip
def test_a_method_that_a_class_gets_later_is_called(make: Any, name: str, method: Callable[..., Any]) -> None:
    cls = type("Program", (), {})
    program = make(cls)
    compiled, x = pyframe.compile(program, backend="eager"), torch.ones(2)
    assert outcome(compiled, x) == outcome(program, x)
    setattr(cls, name, method)
    assert outcome(compiled, x) == outcome(program, x)
