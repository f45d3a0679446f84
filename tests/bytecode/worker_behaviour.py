"""Runs the sample functions as they are and after a round trip through canonical form, nested code included."""

from __future__ import annotations

import inspect
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import sample_functions
from bytecode_support import rebuild, report


def outcome(fn: Callable[[], Any]) -> Any:
    """Value, or exception type, text and the lines and columns of its traceback."""
    try:
        return "value", repr(fn())
    except Exception as error:  # noqa: BLE001  any exception is an outcome
        rows = [
            (frame.f_code.co_name, line, frame.f_code.co_filename)
            for frame, line in traceback.walk_tb(error.__traceback__)
        ]
        return type(error).__name__, str(error), rows[1:]


def rebuilt(fn: types.FunctionType) -> types.FunctionType:
    new = types.FunctionType(
        rebuild(fn.__code__), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    new.__kwdefaults__ = fn.__kwdefaults__
    return new


def compare(fn: types.FunctionType) -> Callable[[], None]:
    def case() -> None:
        expected, actual = outcome(fn), outcome(rebuilt(fn))
        assert actual == expected, f"{actual}\nexpected {expected}"

    return case


def refcounts_stay_flat() -> None:
    """No instruction that materialize adds leaks or drops a reference."""
    marker = object()
    fn = rebuilt(sample_functions.with_blocks)
    before = sys.getrefcount(marker), sys.getrefcount(None) if sys.version_info < (3, 12) else 0
    for _ in range(200):
        fn()
        sample_functions.LOG.clear()
    after = sys.getrefcount(marker), sys.getrefcount(None) if sys.version_info < (3, 12) else 0
    assert abs(after[1] - before[1]) < 50, (before, after)


def signature_kept() -> None:
    def f(a, /, b, *args, c=1, **kwargs):
        return a, b, args, c, kwargs

    assert inspect.signature(rebuilt(f)) == inspect.signature(f)


cases = {name: compare(fn) for name, fn in sample_functions.SAMPLES.items()}
cases["refcounts_stay_flat"] = refcounts_stay_flat
cases["signature_kept"] = signature_kept
report(cases)
