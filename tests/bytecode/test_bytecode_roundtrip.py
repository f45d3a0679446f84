"""materialize(canonicalize(code)) keeps every code object of the standard library, on every CPython present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest_pythons import VERSIONS, run_worker

HERE = Path(__file__).parent
FULL = os.environ.get("PYFRAME_FULL") == "1"


@pytest.mark.parametrize("version", VERSIONS)
def test_standard_library(version: str) -> None:
    result = run_worker(
        version, HERE / "worker_roundtrip.py", "0" if FULL else "150", timeout=1200 if FULL else 280
    )
    failures = result["failures"]
    first = next(iter(failures.items()), None)
    assert not failures, f"{len(failures)} of {result['codes']} code objects, first: {first}"
    assert result["codes"] > (50_000 if FULL else 1_000)


@pytest.mark.parametrize("version", VERSIONS)
def test_behaviour(version: str) -> None:
    result = run_worker(version, HERE / "worker_behaviour.py")
    assert not result["failures"], "\n".join(f"{k}: {v}" for k, v in result["failures"].items())
    assert result["passed"] >= 30


@pytest.mark.parametrize("version", VERSIONS)
def test_resume_and_assemble(version: str) -> None:
    result = run_worker(version, HERE / "worker_emit.py")
    assert not result["failures"], "\n".join(f"{k}: {v}" for k, v in list(result["failures"].items())[:5])
    assert result["passed"] >= 20
