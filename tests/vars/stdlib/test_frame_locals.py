"""`locals()`, `vars()` and `dir()` of the frame are captured if the frame does not break."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
import torch

import pyframe
from tests.util import check

X = torch.arange(3.0)
OUTER = 3


def items(x: Any, a: int = 1, *rest: Any, k: int = 2, **named: Any) -> Any:
    b = x + a
    c: Any
    if a > 5:
        c = 1  # noqa: F841
    del k
    return list(locals().items()), b


def with_cells(x: Any) -> Any:
    n, m = 2, x.sin()

    def inner(y: Any) -> Any:
        z = y * n
        return list(locals()), sorted(vars()), dir(), z

    return inner(m), list(locals())


def arguments_by_name(x: Any, scale: float = 2.0) -> Any:
    return "{scale}".format(**locals()), vars()["scale"], x * locals()["scale"]


def changed_copy(x: Any) -> Any:
    a = 1
    known = locals()
    known["a"] = 5
    known.pop("x")
    return a, x + known["a"], known


def twice(x: Any) -> Any:
    first = locals()
    a = 2
    second = locals()
    del a
    third = locals()
    return sorted(first), sorted(second), first is second, sorted(third), x + 1


def comprehension(x: Any) -> Any:
    return x + 1, [sorted(name for name in locals() if name != ".0") for _ in range(2)] and 0


def in_a_class_body(x: Any) -> Any:
    class Made:
        a = 1
        names = sorted(locals())

    return x + Made.a, Made.names


def broken(x: Any) -> Any:
    y = x + 1
    print("between")
    return sorted(locals()), y


@pytest.mark.parametrize("fn", [items, with_cells, arguments_by_name, changed_copy, twice])
def test_captured(fn: Any) -> None:
    check(fn, X, breaks=0, graphs=1)


@pytest.mark.parametrize("fn", [comprehension, in_a_class_body, broken])
def test_as_in_eager(fn: Any) -> None:
    check(fn, X)


def test_arguments() -> None:
    check(lambda x: items(x, 2, 3, 4, q=5), X, breaks=0, graphs=1)


def own_frame(x: Any) -> Any:
    y = x + 1
    frame = sys._getframe()
    return sorted(frame.f_locals), frame.f_locals["x"] is x, frame.f_code.co_name, y


def own_frame_after_a_break(x: Any) -> Any:
    y = x + 1
    print(end="")
    frame = inspect.currentframe()
    assert frame is not None
    return sorted(frame.f_locals), frame.f_code.co_name, y


@pytest.mark.parametrize("fn", [own_frame, own_frame_after_a_break])
def test_a_frame_that_reads_itself_is_the_original(fn: Any) -> None:
    assert repr(pyframe.compile(fn, backend="eager")(X)) == repr(fn(X))
