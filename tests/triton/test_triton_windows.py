"""Depthwise filters and their gradients, pooling, patches and blocks of pixels as Triton kernels, channels innermost, run
by its interpreter."""

from pathlib import Path

import forked_python
import pytest

pytest.importorskip("triton")


def test_windows():
    worker = Path(__file__).with_name("worker_windows.py")
    done = forked_python.run_file(worker, ("pytest", "torch"), timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") == 32
