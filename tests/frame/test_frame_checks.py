"""Runs the torch-free checks (checks_*.py) on every CPython found, each with an extension built for it."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

from conftest_pythons import VERSIONS, require_python, run_worker  # noqa: E402

MODULES = ("checks_hook", "checks_cache", "checks_compiled", "checks_guards", "checks_memo")
FLAGS = ["-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]


def checks_of(module: str) -> list[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    ]


def compile_extension(python: str, sources: list[Path], target: Path) -> Path:
    wanted = "[s.get_path('include'), s.get_config_var('EXT_SUFFIX')]"
    probe = f"import json, sysconfig as s; print(json.dumps({wanted}))"
    include, suffix = json.loads(subprocess.check_output([python, "-c", probe], text=True))
    output = target.with_name(target.name + suffix)
    command = ["cc", *FLAGS, "-Wno-unused-parameter", f"-I{ROOT / 'csrc'}", f"-I{include}"]
    done = subprocess.run(
        [*command, *map(str, sources), "-ldl", "-lstdc++", "-o", str(output)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return output


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frame_extensions")


@functools.cache
def results_for(version: str, module: str, folder: Path) -> dict[str, str | None]:
    extension, chained = built_for(version, folder)
    result: Any = run_worker(version, HERE / "worker_frame.py", str(extension), str(chained), module)
    return result


@functools.cache
def built_for(version: str, folder: Path) -> tuple[Path, Path]:
    python = require_python(version)
    place = folder / version
    place.mkdir()
    shared = sorted((ROOT / "csrc").glob("*.c*"))
    extension = compile_extension(python, [*(ROOT / "csrc" / "frame").glob("*.c"), *shared], place / "_C")
    chained = compile_extension(python, [HERE / "chained_hook.c"], place / "chained_hook")
    return extension, chained


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("module", "check"), [(module, check) for module in MODULES for check in checks_of(module)]
)
def test_frame(version: str, module: str, check: str, build_folder: Path) -> None:
    require_python(version)
    results = results_for(version, module, build_folder)
    assert check in results, "the worker did not run this check"
    assert results[check] is None, results[check]
