"""A share of the operator suite (`tools/op_suite.py`): some operators through the whole stack, compared with eager."""

from __future__ import annotations

from pathlib import Path

import op_suite
import pytest
import torch
from op_suite_compare import Outcome, difference
from op_suite_report import failures, stale

OPERATORS = "sgn,clamp,nn.functional.pad.reflect,div.floor_rounding,std_mean"


def test_operators_as_in_eager(tmp_path: Path) -> None:
    sys_argv = ["--ops", OPERATORS, "--dtypes", "float32,int64,bool", "--samples", "2", "--modes", "forward,backward"]
    args = op_suite.arguments([*sys_argv, "--out", str(tmp_path), "--show", "0"])
    units = op_suite.select_units(args, OPERATORS.split(","), set())
    rows = op_suite.run_all(units, "ours", args, None)
    bad = {f"{row.op} {row.mode}": failures(row) for row in rows if failures(row)}
    assert not bad and not stale(rows)
    assert sum(row.counts()["right"] for row in rows) > 30


def test_operators_of_nan_and_infinities(tmp_path: Path) -> None:
    operators = "exp,nn.functional.poisson_nll_loss,nn.functional.multi_margin_loss,amax"
    given = ["--ops", operators, "--dtypes", "float32", "--samples", "1", "--modes", "special,special_backward"]
    args = op_suite.arguments([*given, "--out", str(tmp_path), "--show", "0"])
    units = op_suite.select_units(args, operators.split(","), set())
    rows = op_suite.run_all(units, "ours", args, None)
    assert not {f"{row.op} {row.mode}": failures(row) for row in rows if failures(row)}
    assert sum(row.counts()["right"] for row in rows) == len(units)


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (X + 1, "not close"), (X.double(), "dtype"), (X.reshape(3, 2), "shape"), (X.t().contiguous().t(), "strides"),
        (X.clone().requires_grad_(), "requires_grad"), ([X], "structure"), (torch._neg_view(-X), "neg bit"),
    ],
)  # fmt: skip
def test_comparison_sees(other: object, word: str) -> None:
    found = difference(Outcome(X, ()), Outcome(other, ()), lambda: None)
    assert found is not None and word in found
    assert difference(Outcome(X, ()), Outcome(X.clone(), ()), lambda: None) is None


def test_comparison_sees_shared_memory_and_inputs() -> None:
    copy = X.clone()
    assert "shared memory" in str(difference(Outcome(X, X), Outcome(X.clone(), copy), lambda: None))
    assert "input 0" in str(difference(Outcome(None, X), Outcome(None, X + 1), lambda: None))
    assert "gradient 0" in str(difference(Outcome(None, (), [X]), Outcome(None, (), [X + 1]), lambda: None))


def test_comparison_where_eager_overflows() -> None:
    """There a finite number is right only if it is the exact one within the dtype's tolerance."""
    inf, exact = torch.tensor([1.0, float("inf")]).half(), torch.tensor([1.0, 5.5239], dtype=torch.float64)

    def compared(x: torch.Tensor, y: torch.Tensor) -> str | None:
        return difference(Outcome(x, ()), Outcome(y, ()), lambda: Outcome(exact, ()))

    assert compared(inf, exact.half()) is None
    assert compared(inf, torch.tensor([1.0, 5.6]).half()) is not None
    assert compared(exact.half(), inf) is not None
    assert compared(inf, torch.tensor([1.5, 5.5239]).half()) is not None


def test_elements_that_nothing_wrote_are_not_compared() -> None:
    want, got = Outcome([X, X + 2], ()), Outcome([X.clone(), X + 1], ())
    assert difference(want, got, lambda: None) is not None
    assert difference(want, got, lambda: None, unset=frozenset({1})) is None
