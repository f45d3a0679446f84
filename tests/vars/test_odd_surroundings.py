"""Programs in odd surroundings: builtins that are gone, modules without a name, functions without a module."""

from __future__ import annotations

import builtins
import types
from typing import Any

import pytest
import torch

import pyframe


def test_builtins_that_the_program_deletes() -> None:
    def without_iter(x: torch.Tensor) -> Any:
        kept = builtins.iter
        del builtins.__dict__["iter"]
        try:
            pyframe.graph_break()
            return later(x)
        finally:
            builtins.__dict__["iter"] = kept

    def later(x: torch.Tensor) -> Any:
        try:
            return iter([x])
        except NameError as error:
            return str(error), x + 1

    counter = pyframe.testing.CompileCounter()
    compiled = pyframe.compile(without_iter, backend=counter)
    for _ in range(2):
        words, y = compiled(torch.ones(2))
        assert "iter" in words and y.tolist() == [2, 2]
    assert list(iter([1])) == [1]


def test_builtins_that_the_program_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def counted(of: Any, plain: Any = len) -> int:
        lengths.append(plain(of))
        return plain(of)

    def f(xs: list[torch.Tensor]) -> Any:
        return xs[0] + len(xs)

    compiled = pyframe.compile(f, backend="eager")
    monkeypatch.setattr(builtins, "len", counted)
    result = compiled([torch.ones(1)] * 3)
    seen = lengths[:]
    monkeypatch.undo()
    assert seen == [3] and result.item() == 4 == compiled([torch.ones(1)] * 3).item()


def test_a_module_without_a_name() -> None:
    module = types.ModuleType("nameless")
    module.size = 3  # type: ignore[attr-defined]
    del module.__name__

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + module.size  # type: ignore[attr-defined]

    def called(x: torch.Tensor) -> Any:
        return module(x + 1)  # type: ignore[operator]

    assert pyframe.compile(f, backend="eager", fullgraph=True)(torch.ones(1)).item() == 4
    with pytest.raises(TypeError, match="'module' object is not callable"):
        pyframe.compile(called, backend="eager")(torch.ones(1))


def test_a_function_without_a_module() -> None:
    def f(x: torch.Tensor) -> Any:
        try:
            found = str.upper.__module__
        except AttributeError as error:
            found = str(error)
        return x + 1, found, getattr(str.lower, "__module__", 3), hasattr(len, "__module__")

    expected = f(torch.ones(1))
    found = pyframe.compile(f, backend="eager", fullgraph=True)(torch.ones(1))
    assert found[1:] == expected[1:] and found[0].item() == 2
