"""Branches that join again after graph breaks continue in the same resume functions, which are captured once."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch

import pyframe
from tests.util import alike

X = torch.tensor([0.3, -1.2, 0.7])


def tail(x: Any) -> Any:
    return x.sin().cos().exp()


def results(fn: Any) -> list[Any]:
    """The results and the output of calls that take each branch, twice."""
    found = []
    for x in (X, -X, X + 9, X, -X):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            found.append((fn(x), printed.getvalue()))
    return found


def graphs_of(fn: Any) -> list[str]:
    """The operators of each graph."""
    graphs: list[str] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(" ".join(node.name for node in gm.graph.nodes if node.op.startswith("call")))
        return gm.forward

    alike(results(pyframe.compile(fn, backend=backend)), results(fn))
    return graphs


def test_two_branches():
    def f(x):
        if x.sum() > 0:
            print("positive")
        else:
            print("negative")
        return tail(x)

    assert graphs_of(f) == ["sum_1 gt", "sin cos exp"]


def test_three_branches_of_which_one_computes():
    def f(x):
        if x.sum() > 5:
            print("large")
        elif x.sum() > 0:
            x = x * 2
            print("positive")
        else:
            print("negative")
        return tail(x)

    assert sorted(graphs_of(f)) == ["mul", "sin cos exp", "sum_1 gt", "sum_1 gt"]


def test_a_branch_without_the_other():
    def f(x):
        if x.sum() > 0:
            print("positive")
        return tail(x)

    assert graphs_of(f) == ["sum_1 gt", "sin cos exp"]


def test_several_after_each_other():
    def f(x):
        if x.sum() > 0:
            print("positive")
        if x.sum() > 5:
            print("large")
        x = tail(x)
        if x.sum() > 9:
            print("end")
        return x + 1

    assert graphs_of(f) == ["sum_1 gt", "sum_1 gt", "sin cos exp sum_1 gt", "add"]


def test_in_a_block_and_a_handler():
    def f(x):
        try:
            with torch.no_grad():
                if x.sum() > 0:
                    print("positive")
                else:
                    print("negative")
                    raise ValueError("negative")
                x = x * 2
        except ValueError as error:
            print(error)
        finally:
            print("finally")
        return tail(x)

    assert graphs_of(f).count("sin cos exp") == 1


def test_in_a_loop():
    def f(x):
        for _ in range(2):
            if x.sum() > 0:
                print("positive")
            else:
                print("negative")
            x = tail(x)
        return x + 1

    assert graphs_of(f) == ["sin cos exp", "add"]  # two operators of the loop body are not worth a graph


def test_cells():
    def f(x):
        n = 0

        def count():
            nonlocal n
            n += 1

        if x.sum() > 0:
            print("positive")
            count()
        else:
            print("negative")
            count()
        print(n)
        return tail(x) + n

    assert graphs_of(f) == ["sum_1 gt", "sin cos exp add"]


class Base:
    def method(self, x: Any) -> Any:
        return tail(x)


class Derived(Base):
    def method(self, x: Any) -> Any:
        def own() -> Any:
            return self

        if x.sum() > 0:
            print("positive")
        else:
            print("negative")
        print("joined")
        return super().method(x), own() is self


def test_super_where_self_is_in_a_cell():
    assert graphs_of(Derived().method) == ["sum_1 gt", "sin cos exp"]


def test_errors_have_the_lines_of_the_program():
    def f(x):
        if x.sum() > 0:
            print("positive")
        else:
            print("negative")
        raise ValueError(x.shape)

    lines = []
    for fn in (f, pyframe.compile(f, backend="eager")):
        for x in (X, -X):
            with pytest.raises(ValueError) as raised:
                fn(x)
            lines.append(raised.traceback[-1].lineno)
    assert len(set(lines)) == 1


def test_what_only_a_later_part_reads_is_not_guarded():
    seen: list[int] = []

    def f(x):
        y = x.sin()
        print("between")
        seen.append(1)
        return y

    assert graphs_of(f) == ["sin"]
