"""Kernels for many sizes by Triton's interpreter, and compiled for two architectures."""

from pathlib import Path

import forked_python
import pytest

pytest.importorskip("triton")


def test_sizes():
    worker = Path(__file__).with_name("worker_sizes.py")
    done = forked_python.run_file(worker, ("pytest", "torch"), timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernels compiled" in done.stdout
