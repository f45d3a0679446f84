"""A share of the database suite (`tools/database_suite`): entries of each database, compared with eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from op_suite_report import failures, stale

import tools.database_suite.__main__ as suite
from tools.database_suite.exceptions import TABLES
from tools.database_suite.programs import Compile, Program, Step, verdict

SHARE = {
    "modules:nn.BatchNorm2d": ["train", "eval_backward"], "modules:nn.GRUCell": ["train", "dynamic"],
    "optimizers:Adam": ["step"], "foreach:_foreach_lerp": ["inplace"],
    "autograd_function:NumpyMulAutogradFunction": ["backward"], "custom_op:NumpySortCustomOp": ["forward"],
    "distributions:Beta": ["draw"], "functions:autograd_hessian": ["call"], "training:weight_norm": ["call"],
}  # fmt: skip


def test_entries_as_in_eager(tmp_path: Path) -> None:
    args = suite.arguments(["--dtypes", "float32", "--samples", "1", "--out", str(tmp_path), "--show", "0"])
    units = suite.select(args, SHARE, set())
    rows = suite.run(units, args, None)
    assert [(row.op, row.mode) for row in rows] == [(name, mode) for name, modes in SHARE.items() for mode in modes]
    bad = {f"{row.op} {row.mode}": failures(row, TABLES) for row in rows if failures(row, TABLES)}
    assert not bad and not stale(rows, TABLES)
    assert sum(row.counts()["right"] for row in rows) > 15


class _Engine:
    """Compiles a function into another one, which never compiles again."""

    def __init__(self, change: object = None) -> None:
        self.change = change

    def compile(self, fn: object, dynamic: bool) -> object:
        return self.change or fn

    def compilations(self) -> int:
        return 0

    def forget(self) -> None:
        pass


@pytest.mark.parametrize(
    ("change", "word"),
    [(None, "right"), (lambda x: x * 3, "wrong"), (lambda x: (x * 2).double(), "wrong"), (lambda x: x[5], "error")],
)
def test_verdict_on_a_program(change: object, word: str) -> None:
    def make(compile: Compile, dtype: torch.dtype) -> Step:
        fast = compile(lambda x: x * 2)
        return lambda number: fast(torch.ones(3, dtype=dtype))

    assert verdict(Program("doubled", make), _Engine(change))[0] == word
