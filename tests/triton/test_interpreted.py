"""Runs the tests in `interpreted/`, each file in a process of its own: Triton's functions can only be interpreted if its
interpreter was chosen before Triton was imported, and other tests import Triton."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
FILES = sorted((Path(__file__).resolve().parent / "interpreted").glob("*.py"))


@pytest.mark.timeout(1200)  # a whole file of tests, interpreted
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_interpreted(file):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
