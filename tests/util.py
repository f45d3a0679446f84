"""Helpers of the tests: compare what a function does in eager with what it does when captured."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable
from typing import Any

import torch

import pyframe
from pyframe.metrics import counters


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, tensors by shape, dtype and content."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if hasattr(a, "__dict__") and not isinstance(a, type) and not callable(a):
        return same(vars(a), vars(b))
    return bool(a == b)


def alike(got: Any, want: Any) -> None:
    """Equal in type and structure, tensors but for rounding."""
    assert type(got) is type(want), (got, want)
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(want, tuple | list):
        assert len(got) == len(want)
        for pair in zip(got, want, strict=True):
            alike(*pair)
    else:
        assert got == want


def outcome(fn: Callable[..., Any], args: Any) -> tuple[Any, ...]:
    """What a call did: result or exception, what it printed, and its arguments afterwards."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = ("returned", fn(*args))
        except Exception as error:  # noqa: BLE001  compared, not hidden
            result = ("raised", type(error).__name__, str(error))
    return (*result, printed.getvalue(), args)


def result_or_error(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a call, or the type and message of the exception that it raised."""
    try:
        return fn(*args)
    except Exception as error:  # noqa: BLE001  compared, not hidden
        return type(error), str(error)


def line_of(file: str, marker: str) -> int:
    """The number of the line in a file that ends with the comment `marker`."""
    with open(file) as source:
        return next(i for i, line in enumerate(source, 1) if line.rstrip().endswith(f"# {marker}"))


def check(fn: Callable[..., Any], *args: Any, breaks: int | None = None, graphs: int | None = None) -> None:
    """Run `fn` eagerly and captured (a miss, then a hit) on copies of `args`: all must agree.

    `breaks`: graph breaks expected, by the counter; `graphs`: graphs expected.
    """
    broken, made = sum(counters["graph_breaks"].values()), counters["graphs"]
    compiled = pyframe.compile(fn, backend="eager")
    expected = outcome(fn, copy.deepcopy(args))
    for turn in ("miss", "hit"):
        got = outcome(compiled, copy.deepcopy(args))
        assert same(expected, got), f"{fn.__name__}, {turn}:\n  eager    {expected}\n  captured {got}"
    if breaks is not None:
        assert sum(counters["graph_breaks"].values()) - broken == breaks
    if graphs is not None:
        assert counters["graphs"] - made == graphs
