"""Runs the tests in `interpreted/`, each file in a process of its own: Triton's functions can only be interpreted if its
interpreter was chosen before Triton was imported, and other tests import Triton."""

from pathlib import Path

import forked_python
import pytest

pytest.importorskip("triton")
PROGRAM = """
import sys
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""
FILES = sorted((Path(__file__).resolve().parent / "interpreted").glob("*.py"))


@pytest.mark.timeout(1200)  # a whole file of tests, interpreted
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_interpreted(file):
    done = forked_python.run(PROGRAM, ["pytest", "torch"], [str(file)], timeout=1200)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
