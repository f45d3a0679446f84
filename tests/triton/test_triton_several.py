"""Updates of many tensors in few launches, in a process of its own: it replaces the device of every graph."""

import subprocess
import sys
from pathlib import Path


def test_steps_of_optimizers():
    worker = Path(__file__).with_name("worker_several.py")
    done = subprocess.run([sys.executable, str(worker)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "right\n"
