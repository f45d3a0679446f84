"""The package: its metadata says what is true, and its sdist has all that a build needs."""

from __future__ import annotations

import importlib
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

import pyframe
from pyframe.cli import doctor
from tools import build_wheels

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_entry_point_is_the_compiler():
    (name, target), = PROJECT["project"]["entry-points"]["torch_dynamo_backends"].items()
    module, attribute = target.split(":")
    assert name == "pyframe_inductor" and callable(getattr(importlib.import_module(module), attribute))


def test_the_versions_of_python_are_those_that_doctor_accepts():
    prefix = "Programming Language :: Python :: 3."
    minors = sorted(int(row.removeprefix(prefix)) for row in PROJECT["project"]["classifiers"] if row.startswith(prefix))
    assert minors == list(range(doctor.OLDEST_PYTHON[1], doctor.NEWEST_PYTHON[1] + 1))
    assert PROJECT["project"]["requires-python"] == f">=3.{minors[0]},<3.{minors[-1] + 1}"


def test_the_version_is_in_the_changelog():
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "pyframe.version.__version__"
    assert f"is {pyframe.__version__}." in (ROOT / "CHANGELOG.md").read_text().split("## Unreleased")[0].replace("\n", " ")


def test_the_sdist_has_what_a_build_needs(tmp_path, monkeypatch):
    asked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if asked.returncode:
        pytest.skip("not a checkout")
    monkeypatch.setattr(build_wheels, "DIST", tmp_path / "dist")
    (tmp_path / "dist").mkdir()
    sdist = build_wheels.build_sdist(build_wheels.checkout(tmp_path / "source"))
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    needed = [name for name in asked.stdout.split("\0") if name.startswith(("csrc/", "pyframe/", "inductor/"))]
    assert f"pyframe-{pyframe.__version__}" in sdist.name
    assert [name for name in (*needed, "LICENSE", "README.md", "setup.py") if name not in packed] == []
    assert [name for name in packed if name.endswith(".so")] == []
