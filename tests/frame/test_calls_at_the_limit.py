"""The hook's callback for frames that it does not capture: it is called for each of their calls."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import pyframe
from pyframe import _C
from pyframe.driver import FrameCompiler


class Odd:
    compared = 0

    def __hash__(self) -> int:
        return hash("a") + 1  # one key of the same hash would be asked whether it is "a", as dicts do

    def __eq__(self, other: object) -> bool:
        Odd.compared += 1
        return False


def test_has_items() -> None:
    value: list[int] = []
    odd = {Odd(): 1, "a": value, 1: 2}
    Odd.compared = 0
    assert _C.has_items(odd, {"a": value})
    assert not Odd.compared
    assert not _C.has_items({"a": []}, {"a": value})
    assert not _C.has_items({"b": value}, {"a": value})
    with pytest.raises(TypeError):
        _C.has_items({}, [])  # type: ignore[arg-type]


def helper(x: Any) -> Any:
    return x * 2


def program(x: Any, number: int) -> Any:
    x = x + number
    pyframe.graph_break()
    return helper(x)


def test_a_function_at_its_limit_and_what_it_calls_are_settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pyframe.compile(program, backend="eager", dynamic=False, options={"recompile_limit": 1})
    x = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(x, 2)
        compiled(x, 3)
    answered = []
    answer = FrameCompiler._handle_miss

    def counted(self: Any, func: Any, *rest: Any) -> Any:
        answered.append(func.__name__)
        return answer(self, func, *rest)

    monkeypatch.setattr(FrameCompiler, "_handle_miss", counted)
    assert compiled(x, 4).tolist() == [10, 10]
    assert answered == []
    with pyframe.set_stance("fail_on_recompile"), pytest.raises(pyframe.errors.RecompileError):
        compiled(x, 5)
