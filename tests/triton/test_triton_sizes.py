"""Kernels for many sizes by Triton's interpreter, and compiled for two architectures."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_sizes():
    worker = Path(__file__).with_name("worker_sizes.py")
    done = subprocess.run([sys.executable, str(worker)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernels compiled" in done.stdout
