"""Depthwise filters and their gradients, pooling, patches and blocks of pixels as Triton kernels, channels innermost, run
by its interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_windows():
    worker = Path(__file__).with_name("worker_windows.py")
    done = subprocess.run([sys.executable, str(worker)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") == 32
