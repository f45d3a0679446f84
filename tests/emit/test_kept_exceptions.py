"""An exception that is raised and caught in traced code, and lives on, has the traceback that it has in eager."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyframe

OLD = ValueError("there before")


def inner() -> None:
    raise ValueError("raised by a call")


def by_a_call(x: Any) -> Any:
    try:
        inner()
    except ValueError as error:
        kept = error
    return kept, x + 1


def by_the_frame(x: Any) -> Any:
    try:
        raise ValueError("raised here")
    except ValueError as error:
        kept = error
    return kept, x + 1


def catches() -> Exception | None:
    try:
        inner()
    except ValueError as error:
        return error
    return None


def in_a_call(x: Any) -> Any:
    y = x * 2
    error = catches()
    return error, y + 1


def chained(x: Any) -> Any:
    try:
        try:
            inner()
        except ValueError as error:
            raise KeyError("of it") from error
    except KeyError as error:
        kept = error
    return kept, x + 1


def there_before(x: Any) -> Any:
    try:
        raise OLD
    except ValueError:
        x = x + 1
    return OLD, x


def cleared(x: Any) -> Any:
    try:
        inner()
    except ValueError as error:
        kept = error.with_traceback(None)
    return kept, x + 1


def never_raised(x: Any) -> Any:
    error = ValueError("never raised")
    return error, x + 1, error.__traceback__, OLD.__traceback__


def only_traceback(x: Any) -> Any:
    try:
        inner()
    except ValueError as error:
        kept = error.__traceback__
    return ValueError().with_traceback(kept), x + 1


def lines(error: BaseException | None) -> list[list[str | None]]:
    found = []
    while error is not None:
        found.append([each.line for each in traceback.extract_tb(error.__traceback__)])
        error = error.__cause__
    return found


@pytest.mark.parametrize(
    "program",
    [by_a_call, by_the_frame, in_a_call, chained, there_before, cleared, never_raised, only_traceback],
)
def test_traceback_of_what_is_kept(program: Callable[..., Any]) -> None:
    x = torch.ones(2)
    OLD.__traceback__ = None
    error, *rest = program(x)
    expected = lines(error), rest[1:]
    OLD.__traceback__ = None
    error, *rest = pyframe.compile(program, backend="eager")(x)
    assert (lines(error), rest[1:]) == expected


@pyframe.disable
def code_of_caller() -> Any:
    frame = sys._getframe(1)
    while frame.f_code.co_name != "shows_itself":
        frame = frame.f_back
    return frame.f_code


def shows_itself(x: Any) -> Any:
    return code_of_caller(), x + 1


def test_replaced_frames_start_where_the_program_says() -> None:
    """A traceback of a frame at its first instruction shows the range of it."""
    code, _ = pyframe.compile(shows_itself, backend="eager")(torch.ones(2))
    assert code is not shows_itself.__code__
    assert next(code.co_positions()) == next(shows_itself.__code__.co_positions())
