"""The pages: their Python runs, their excerpts are current, what they name exists."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
import textwrap
from pathlib import Path
from unittest import mock

import pytest

import pyframe.interp.trace  # noqa: F401  registers the handlers, which pages add to
from inductor.lower.registry import LOWERINGS
from pyframe.interp.frame import HANDLERS
from pyframe.vars import registry

ROOT = Path(__file__).parents[2]
import gen_walkthrough  # noqa: E402

FILES = [str(path) for folder in ("pyframe", "inductor", "tools", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# The programs of these pages have tests of their own.
RUN_ELSEWHERE = {
    "graph_breaks.md": "tests/report/test_break_catalogue.py",
    "user_guide.md": "tests/api/test_user_guide.py",
    "distributed.md": "tests/distributed/test_distributed_page.py",
}
OWN = ("pyframe", "inductor", "benchmarks", "tools")
WORDS = 2000  # of the architecture page, excerpts apart
_PYTHON = re.compile(r"^( *)```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_PATH = re.compile(r"`((?:docs|tests|tools|benchmarks|examples|csrc|inductor|pyframe|\.ci|\.github)/[\w./-]*)`")
_TARGET = re.compile(r"`make ([\w-]+)")


def names_of(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


def programs(page):
    return [textwrap.dedent(code) for _, code in _PYTHON.findall(page.read_text())]


WITH_PYTHON = [page for page in PAGES if page.name not in RUN_ELSEWHERE and programs(page)]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=names_of(WITH_PYTHON))
def test_its_python_runs(page, tmp_path):
    names: dict[str, object] = {"__name__": page.stem}
    with contextlib.ExitStack() as undo:
        for table in (LOWERINGS, HANDLERS, registry._CALLS):
            undo.enter_context(mock.patch.dict(table))
        for number, code in enumerate(programs(page)):
            path = tmp_path / f"{page.stem}_{number}.py"  # a file, so that its lines can be quoted
            path.write_text(code)
            exec(compile(code, str(path), "exec"), names)


def test_pages_that_run_elsewhere_exist():
    assert all((ROOT / "docs" / page).exists() and (ROOT / test).exists() for page, test in RUN_ELSEWHERE.items())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a callable and NULL are pushed in another order")
def test_the_excerpts_of_the_architecture_page_are_current():
    page = gen_walkthrough.PAGE.read_text()
    assert page == gen_walkthrough.render(page), "run tools/gen_walkthrough.py"


def test_the_architecture_page_takes_an_hour():
    text = re.sub(r"^```.*?^```$", "", gen_walkthrough.PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(text.split()) < WORDS


@pytest.mark.parametrize("page", PAGES, ids=names_of(PAGES))
def test_the_files_that_it_names_exist(page):
    text = page.read_text()
    named = {path.rstrip("/.") for path in _PATH.findall(text)}
    assert sorted(path for path in named if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists()) == []
    short = set(re.findall(r"`([\w/]+\.py)\b", text))  # relative to a package
    assert sorted(path for path in short if not any(file.endswith(f"/{path}") for file in FILES)) == []


@pytest.mark.parametrize("page", PAGES, ids=names_of(PAGES))
def test_the_commands_that_it_names_exist(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(_TARGET.findall(page.read_text())) <= targets


FORMS = [*PAGES, *sorted((ROOT / ".github").rglob("*.[my]*"))]


@pytest.mark.parametrize("page", FORMS, ids=names_of(FORMS))
def test_the_programs_that_it_runs_exist(page):
    text = page.read_text()
    modules = {name for name in re.findall(r"python -m\s+([\w.]+)", text) if name.split(".")[0] in OWN and not name.endswith(".NAME")}
    assert [name for name in modules if importlib.util.find_spec(name.rstrip(".")) is None] == []
    scripts = set(re.findall(r"python ((?:tools|examples|benchmarks)/[\w/]+\.py)", text))
    assert [path for path in scripts if not (ROOT / path).exists()] == []


def test_the_tests_of_make_check_exist():
    paths = re.search(r"^CHECK_TESTS := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert paths and [path for path in paths[1].replace("\\", "").split() if not (ROOT / path).exists()] == []


def test_decisions_are_numbered_without_gaps_and_listed():
    folder = ROOT / "docs" / "decisions"
    notes = sorted(path.name for path in folder.glob("[0-9]*.md"))
    listed = re.findall(r"\]\(([0-9]{4}-[\w-]+\.md)\)", (folder / "README.md").read_text())
    assert notes == listed
    assert [int(name[:4]) for name in notes] == list(range(int(notes[0][:4]), int(notes[0][:4]) + len(notes)))


