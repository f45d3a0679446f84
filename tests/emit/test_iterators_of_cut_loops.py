"""A loop that a break cuts holds its iterator no longer than the program does: generators close when they would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import pyframe

LOG: list[Any] = []


def given() -> Iterator[int]:
    try:
        yield 1
        yield 2
    finally:
        LOG.append("closed")


def left_by_an_exception(x: Any) -> None:
    for _ in given():
        LOG.append("body")
        [].pop()


def left_by_break(x: Any) -> None:
    for _ in given():
        print(end="")
        if x is not None:
            break
    print(end="")
    LOG.append("after")


def left_by_inner_break(x: Any) -> None:
    for outer in given():
        for _ in given():
            print(end="")
            if outer:
                break
        print(end="")
        LOG.append("in")
        print(end="")
    LOG.append("after")


def exhausted(x: Any) -> None:
    for _ in given():
        print(end="")
    LOG.append("after")


@pytest.mark.parametrize("program", [left_by_an_exception, left_by_break, left_by_inner_break, exhausted])
def test_a_generator_closes_when_it_would(program: Callable[..., Any]) -> None:
    logs = []
    for fn in (program, pyframe.compile(program, backend="eager")):
        LOG.clear()
        try:
            fn(torch.ones(2))
        except IndexError:
            LOG.append("caught")
        logs.append(list(LOG))
    assert logs[1] == logs[0]
