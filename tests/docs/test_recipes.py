"""The scripts of docs/recipes.md run: each compares its results with eager."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.py"))
PAGE = (ROOT / "docs" / "recipes.md").read_text()


def test_the_page_shows_each_recipe():
    assert sorted(re.findall(r"literalinclude} \.\./examples/recipes/(\w+\.py)", PAGE)) == [path.name for path in RECIPES]


def test_each_recipe_has_at_least_two_sentences():
    sections = [section for section in PAGE.split("\n## ")[1:]]
    assert [section.split("\n")[0] for section in sections if section.split("`examples/")[0].count(". ") < 1] == []


@pytest.mark.parametrize("script", RECIPES, ids=[path.stem for path in RECIPES])
def test_it_runs(script, tmp_path):
    needs = re.search(r"# needs (.+)", script.read_text())
    for package in needs[1].split(", ") if needs else ():
        if find_spec(package) is None:  # an import would stay in this process
            pytest.skip(f"{package} is not installed")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYFRAME_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
