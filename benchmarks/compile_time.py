"""Measures the first call in a fresh process, in seconds, with a cold and a warm cache.

    python -m benchmarks.compile_time

The clock runs from before the import of the compiler to the end of the first call; `import torch`, `import
transformers` and the construction of the model come before it for all compilers. "CPU s" is the processor time of the
process and of child processes that have ended; it hardly depends on other work on the machine. torch.compile's pool of
compile workers does not end and is not included.
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

from .large_graphs import processor_seconds

PROGRAMS = ("trivial", "bert")
SYSTEMS = ("torch.compile", "pyframe")


def make_program(program: str) -> tuple[Any, tuple[Any, ...]]:
    """A program of PROGRAMS: the function or module, and its arguments."""
    import torch

    if program == "bert":
        from .programs import make_bert

        return make_bert()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    return fn, (torch.randn(4),)


def child(program: str, system: str) -> None:
    import torch

    fn, args = make_program(program)
    with torch.no_grad():
        fn(*args)
        start, used = time.perf_counter(), processor_seconds()
        if system == "pyframe":
            import pyframe

            pyframe.compile(fn)(*args)
        else:
            torch.compile(fn)(*args)
        print(f"SECONDS {time.perf_counter() - start} {processor_seconds() - used}")


def first_call(program: str, system: str, cache: str) -> tuple[float, float]:
    """Wall and processor seconds in a new process."""
    env = {**os.environ, "PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    command = [sys.executable, "-m", "benchmarks.compile_time", "--child", program, system]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    for line in out.stdout.splitlines():
        if line.startswith("SECONDS "):
            wall, used = map(float, line.split()[1:])
            return wall, used
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
        cold: dict[str, list[tuple[float, float]]] = {s: [] for s in SYSTEMS}
        warm: dict[str, list[tuple[float, float]]] = {s: [] for s in SYSTEMS}
        for _ in range(options.rounds):
            for system in SYSTEMS:
                with tempfile.TemporaryDirectory() as cache:
                    cold[system].append(first_call(program, system, cache))
                    warm[system].append(first_call(program, system, cache))
        for label, samples in (("cold", cold), ("warm", warm)):
            row: dict[str, Any] = {"program": program, "cache": label}
            for name, k in (("s", 0), ("CPU s", 1)):
                taken = {system: statistics.median(each[k] for each in samples[system]) for system in SYSTEMS}
                row |= {f"{system} {name}": seconds for system, seconds in taken.items()}
                row[f"pyframe / torch.compile, {name}"] = taken["pyframe"] / taken["torch.compile"]
            rows.append(row)
    report("compile_time", rows)


if __name__ == "__main__":
    main()
