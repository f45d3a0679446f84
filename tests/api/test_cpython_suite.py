"""A few of CPython's own test modules with every frame sent through the tracer: the outcomes of plain CPython."""

from __future__ import annotations

import sys

import cpython_suite
import pytest

pytest.importorskip("test.test_raise", reason="this Python came without its tests")
SECONDS = 120


@pytest.mark.parametrize("module", ["test_unary", "test_raise"])
def test_traced_module(module: str) -> None:
    plain = cpython_suite.run(sys.executable, "torch", module, SECONDS)
    ours = cpython_suite.run(sys.executable, "trace", module, SECONDS)
    row = cpython_suite.compare(plain, ours, "trace")
    assert row["verdict"] == "same", row
    assert row["replaced"] > row["passed"] > 5 and not row["not_compared"]


def test_a_run_that_is_cut_off_is_said_to_be() -> None:
    plain = {"tests": {"a": "ok", "b": "ok"}, "replaced": 0}
    ours = {"tests": {"a": "error: x"}, "crash": "took more than 1 s"}
    row = cpython_suite.compare(plain, ours, "trace")
    assert (row["verdict"], row["compared"], list(row["different"])) == ("different", 1, ["a"])
    assert cpython_suite.compare(plain, {**ours, "tests": {"a": "ok"}}, "trace")["verdict"] == "cut off"
    assert cpython_suite.compare(plain, {**ours, "crash": "exit status -11"}, "trace")["verdict"] == "crash"
