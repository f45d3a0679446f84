"""Captures of programs whose libraries are edited between two processes, and of processes that have replaced functions
before pyframe is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from .edited_programs import EDITED

ROOT = Path(__file__).parent.parent.parent
# What the program reads from a tensor when it is called.
UNAFFECTED = {"value of a tensor (torch)", "value of a tensor as a list (torch)"}


class Programs:
    """The programs of EDITED in files, and a cache for the processes that run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules = {name: f"program_{number}" for number, name in enumerate(EDITED)}
        (folder / "source").mkdir()

    def run(self, mode: str, names: Iterable[str], edit: bool) -> dict[str, Any]:
        """What the programs with these names give in a process of their own."""
        source = self.folder / "source"
        for name in names:
            self._write(source, name, edit)
        (source / "names.json").write_text(json.dumps({name: self.modules[name] for name in names}))
        found = run("edited", self.folder, [str(source)], mode)
        assert set(found) == set(names)
        return found

    def _write(self, source: Path, name: str, edit: bool) -> None:
        program = EDITED[name]
        text = program.library
        if edit and program.old:
            assert program.old in text, name
            text = text.replace(program.old, program.new)
        elif edit:
            text = f"{program.new}\n{text}"
        for module in (self.modules[name], f"{self.modules[name]}_again"):
            (source / f"{module}_lib.py").write_text(f"{text}\n")
            (source / f"{module}.py").write_text(
                f"import torch, {module}_lib as lib\ndef program(x):\n    return x.mm(x), {program.result}\n"
            )


def run(module: str, folder: Path, arguments: list[str], name: str) -> dict[str, Any]:
    output = folder / f"{name}.json"
    env = {
        **os.environ, "PYFRAME_CACHE_DIR": str(folder / "cache"), "PYFRAME_FRAME_CACHE": "on",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", f"tests.frame_cache.{module}", *arguments, str(output)]
    subprocess.run(command, env=env, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(output.read_text())
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the programs give at first, what those that were kept give again, and what all give after the edits."""
    programs = Programs(tmp_path_factory.mktemp("edited"))
    first = programs.run("first", list(EDITED), edit=False)
    kept = [name for name, outcome in first.items() if outcome["kept"]]
    return {"first": first, "again": programs.run("again", kept, edit=False),
            "edited": programs.run("edited", list(EDITED), edit=True)}  # fmt: skip


def test_every_run_gives_what_eager_gives(outcomes: dict[str, dict[str, Any]]) -> None:
    for mode, found in outcomes.items():
        for name, outcome in found.items():
            assert outcome["compiled"] == outcome["eager"], (mode, name)


def test_every_edit_has_an_effect(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, outcome in outcomes["edited"].items():
        assert outcome["eager"] != outcomes["first"][name]["eager"], name


def test_no_capture_serves_an_edited_program(outcomes: dict[str, dict[str, Any]]) -> None:
    loaded = {name for name, outcome in outcomes["edited"].items() if outcome["loaded"]}
    assert loaded == UNAFFECTED


def test_captures_of_what_is_not_edited_are_loaded(outcomes: dict[str, dict[str, Any]]) -> None:
    assert len(outcomes["again"]) > 150
    missed = {name for name, outcome in outcomes["again"].items() if not outcome["loaded"]}
    assert missed == {"arguments (process)"}  # which hold the name of the output


def test_what_is_not_kept_says_why(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, outcome in outcomes["first"].items():
        assert outcome["kept"] or outcome["reasons"], name


def test_functions_that_are_replaced_before_pyframe_is_imported(tmp_path: Path) -> None:
    for name, outcome in run("patched", tmp_path, [], "patched").items():
        before, after = outcome["before"], outcome["after"]
        assert before["kept"] and before["compiled"] == before["eager"], name
        assert after["eager"] != before["eager"] and after["compiled"] == after["eager"], name
        assert not after["loaded"], name
