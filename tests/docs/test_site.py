"""The documentation site: it builds without a warning, loads nothing from other servers, and has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import inductor
import pyframe

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
for package in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(package, reason="the extra `docs` is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", str(DOCS), str(built)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert run.returncode == 0, run.stderr
    return built


def test_every_page_is_in_it(site):
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert [page for page in pages if not (site / page).exists()] == []


def test_it_loads_nothing_from_other_servers(site):
    loaded = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="((?:https?:)?//[^"]*)')
    assert {page.name: loaded.findall(page.read_text()) for page in site.rglob("*.html")
            if loaded.search(page.read_text())} == {}  # fmt: skip
    fetched = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(?:https?:)?//")
    assert [sheet.name for sheet in site.rglob("*.css") if fetched.search(sheet.read_text())] == []


def test_names_of_pages_are_links(site):
    assert 'href="graph_breaks.html"' in (site / "user_guide.html").read_text()
    assert 'href="0001-bytecode-codec.html"' in (site / "decisions" / "README.html").read_text()


def test_the_reference_has_every_public_name(site):
    page = (site / "api.html").read_text()
    described = set(re.findall(r'id="([\w.]+)"', page))
    names = [f"pyframe.{name}" for name in pyframe.__all__ if name != "exc"]
    names += [f"inductor.{name}" for name in inductor.__all__]
    assert [name for name in names if name not in described and f'id="module-{name}"' not in page] == []
