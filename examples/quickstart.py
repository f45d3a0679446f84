"""The main job in one table: compile three programs, compare with eager.

    python examples/quickstart.py

Runs on the GPU where there is one.  Exits with status 1 when a result differs from eager by more than 1e-3 of its
largest value.  "cold" is the first call with an empty cache, "warm" the first call of a new process that finds the
kernels on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

TOLERANCE = 1e-3


def run(name: str) -> dict[str, float]:
    """One program in this process: first call, speed, error."""
    import torch

    from benchmarks.harness import interleaved
    from benchmarks.programs import DEMO, relative_error

    fn, args = DEMO[name]()
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    if torch.cuda.is_available():
        fn, args = fn.cuda() if isinstance(fn, torch.nn.Module) else fn, tuple(a.cuda() for a in args)
    with torch.no_grad():
        want = fn(*args)
        wait()
        start = time.perf_counter()
        import pyframe

        fast = pyframe.compile(fn)
        got = fast(*args)
        wait()
        first = time.perf_counter() - start
        fast(*args)
        t = interleaved(
            {"eager": lambda: (fn(*args), wait()), "ours": lambda: (fast(*args), wait())}, rounds=15, calls=2
        )
    return {
        "eager": t["eager"] * 1e3,
        "ours": t["ours"] * 1e3,
        "error": relative_error(got, want),
        "graphs": pyframe.counters["graphs"],
        "breaks": sum(pyframe.counters["graph_breaks"].values()),
        "first": first,
    }


def in_new_process(name: str, cache: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--program", name]
    out = subprocess.run(command, env={**os.environ, "PYFRAME_CACHE_DIR": cache}, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{name} failed:\n{out.stdout}\n{out.stderr}")
    return json.loads(out.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        print(json.dumps(run(options.program)))
        return 0
    from benchmarks.harness import table
    from benchmarks.programs import DEMO

    rows, wrong = [], []
    for name in DEMO:
        with tempfile.TemporaryDirectory() as cache:
            cold = in_new_process(name, cache)
            warm = in_new_process(name, cache)
        rows.append(
            {
                "program": name,
                "eager ms": warm["eager"],
                "compiled ms": warm["ours"],
                "ratio": warm["eager"] / warm["ours"],
                "relative error": max(cold["error"], warm["error"]),
                "graphs": warm["graphs"],
                "graph breaks": warm["breaks"],
                "first call cold s": cold["first"],
                "first call warm s": warm["first"],
            }
        )
        if not max(cold["error"], warm["error"]) <= TOLERANCE:
            wrong.append(name)
    print(table(rows))
    for name in wrong:
        print(f"MISMATCH: {name} differs from eager by more than {TOLERANCE}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
