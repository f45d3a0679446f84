"""docs/limitations.md: each row of its table of breaks is true, and each id that it names exists."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from pathlib import Path

import pytest
import torch
from limitation_programs import PROGRAMS

import pyframe
from pyframe.core.breaks import CATALOGUE

PAGE = (Path(__file__).parents[2] / "docs" / "limitations.md").read_text()
TABLE = PAGE.split("## Breaks the graph")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("| ")][1:]


def test_every_row_has_a_program_and_every_program_a_row():
    assert [row[0] for row in ROWS] == [what for what, _, _ in PROGRAMS]


def test_the_ids_are_those_of_the_catalogue():
    named = {name for row in ROWS for name in re.findall(r"`([\w-]+)`", row[2])}
    assert named <= CATALOGUE.keys()
    assert all(kind in re.findall(r"`([\w-]+)`", row[2]) for row, (_, kind, _) in zip(ROWS, PROGRAMS, strict=True))


@pytest.mark.parametrize("what, kind, program", PROGRAMS, ids=[what[:40] for what, _, _ in PROGRAMS])
def test_the_row_is_true(what, kind, program, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program)
    names = {"torch": torch, "x": torch.ones(3), "__file__": str(path)}
    exec(compile(program, str(path), "exec"), names)
    small = pyframe.config.patch(instruction_limit=10_000)
    with small, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        explained = pyframe.explain(names["f"], backend="eager")(names["x"])
    assert kind in {found.kind for found in explained.breaks}
