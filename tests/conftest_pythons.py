"""Other CPythons for tests that need no torch: found on PATH and under pyenv; a missing one is a visible skip."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def _reports_version(executable: Path | str, version: str) -> bool:
    probe = "import sys; print('%d.%d' % sys.version_info[:2], sys.implementation.name)"
    try:
        done = subprocess.run(
            [str(executable), "-c", probe], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.split() == [version, "cpython"]


def _pyenv_key(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.split(".") if part.isdigit())


@functools.cache
def find_python(version: str) -> str | None:
    """Path of a CPython of `version` ("3.13"), or None."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    candidates: list[Path | str] = []
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for home in sorted(root.glob(f"{version}*"), key=_pyenv_key, reverse=True):
        candidates.append(home / "bin" / "python")
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        candidates.append(on_path)
    return next((str(path) for path in candidates if _reports_version(path, version)), None)


def require_python(version: str) -> str:
    """`find_python`, or a skip that names what is missing."""
    path = find_python(version)
    if path is None:
        pytest.skip(f"no CPython {version} on PATH or under pyenv")
    return path


def run_worker(version: str, script: Path, *args: str, timeout: float = 280) -> Any:
    """Run `script` under CPython `version`; returns the JSON value on the last line of its output."""
    done = subprocess.run(
        [require_python(version), "-W", "ignore", str(script), *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, (
        f"{script.name} under {version} exited {done.returncode}\n{done.stderr[-4000:]}"
    )
    return json.loads(done.stdout.splitlines()[-1])
