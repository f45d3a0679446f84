"""`benchmarks.distributed` at small sizes on the CPU: it checks the gradients of each kind of parallelism itself."""

from __future__ import annotations

import subprocess
import sys


def test_gpt() -> None:
    line = [sys.executable, "-m", "benchmarks.distributed", "--tiny", "--device", "cpu", "--program", "gpt", "--kind", "ddp"]
    line += ["--systems", "eager,pyframe", "--rounds", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("pyframe ms") == 1
    assert "runs with ATen" not in done.stderr
