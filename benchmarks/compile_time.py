"""Seconds of the first call, each in a fresh process, with a cold and a warm cache.

    python -m benchmarks.compile_time

The clock runs from before the import of the compiler under test to the end of the first call; `import torch`, and
`import transformers` with the construction of the model, come before it for both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

PROGRAMS = ("trivial", "bert")
SYSTEMS = ("torch.compile", "pyframe")


def child(program: str, system: str) -> None:
    import torch

    if program == "trivial":

        def fn(x: torch.Tensor) -> torch.Tensor:
            return x.sin() + 1

        args: tuple[Any, ...] = (torch.randn(4),)
    else:
        from .programs import make_bert

        fn, args = make_bert()
    with torch.no_grad():
        fn(*args)
        start = time.perf_counter()
        if system == "pyframe":
            import pyframe

            pyframe.compile(fn)(*args)
        else:
            torch.compile(fn)(*args)
        print(f"SECONDS {time.perf_counter() - start}")


def first_call(program: str, system: str, cache: str) -> float:
    env = {**os.environ, "PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    command = [sys.executable, "-m", "benchmarks.compile_time", "--child", program, system]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    for line in out.stdout.splitlines():
        if line.startswith("SECONDS "):
            return float(line.split()[1])
    raise SystemExit(f"{' '.join(command)} failed:\n{out.stdout}\n{out.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2, metavar=("PROGRAM", "SYSTEM"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    from .harness import report

    rows = []
    for program in PROGRAMS:
        cold: dict[str, list[float]] = {s: [] for s in SYSTEMS}
        warm: dict[str, list[float]] = {s: [] for s in SYSTEMS}
        for _ in range(options.rounds):
            for system in SYSTEMS:
                with tempfile.TemporaryDirectory() as cache:
                    cold[system].append(first_call(program, system, cache))
                    warm[system].append(first_call(program, system, cache))
        for label, samples in (("cold", cold), ("warm", warm)):
            t = {s: statistics.median(v) for s, v in samples.items()}
            rows.append(
                {
                    "program": program,
                    "cache": label,
                    "torch.compile s": t["torch.compile"],
                    "pyframe s": t["pyframe"],
                    "pyframe / torch.compile": t["pyframe"] / t["torch.compile"],
                }
            )
    report("compile_time", rows)


if __name__ == "__main__":
    main()
