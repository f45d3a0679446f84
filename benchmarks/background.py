"""Measures how long calls take while `options={"background": True}` compiles, beside eager.

    python -m benchmarks.background

Each program runs in a process of its own, without anything in the cache. "compile()" is the call of `pyframe.compile`,
which loads the compiler; "first" the first call, which captures the program; "longest" the longest of the calls behind
it, up to and including the one that switches to the kernels, which is also shown alone ("switch"), and "median" their
median; "after" is the median of calls with kernels. All are divided by eager's median, whose own longest call in as
many seconds is "eager longest".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import pyframe

from .harness import report
from .programs import make_bert, make_gpt, make_mlp

PROGRAMS = {"12-layer MLP, 8x64": make_mlp, "BERT, 6 layers": make_bert, "GPT, 6 layers": make_gpt}
MODES = ("inference", "training")


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def calls_for(seconds: float, call: Callable[[], Any]) -> list[float]:
    """The seconds of each call, for so many seconds."""
    end, taken = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        taken.append(seconds_of(call))
    return taken


def row(program: str, mode: str) -> dict[str, Any]:
    """The measurement of one program in this process."""
    fn, args = PROGRAMS[program]()

    def step(run: Callable[..., Any]) -> Any:
        if mode == "inference":
            with torch.no_grad():
                return run(*args)
        result = run(*args)
        leaves = result if isinstance(result, torch.Tensor) else next(iter(result.values()))
        leaves.sum().backward()
        return None

    calls_for(1, lambda: step(fn))
    eager = calls_for(5, lambda: step(fn))
    made: list[Any] = []
    settings: dict[str, Any] = {"options": {"background": True, "measure": False}}
    compiling = seconds_of(lambda: made.append(pyframe.compile(fn, **settings)))
    fast = made[0]
    first = seconds_of(lambda: step(fast))
    until: list[float] = []
    while not pyframe.wait_for_kernels(0):
        until.append(seconds_of(lambda: step(fast)))
    switch = seconds_of(lambda: step(fast))
    after = calls_for(2, lambda: step(fast))
    unit = statistics.median(eager)
    return {
        "program": f"{program}, {mode}", "eager ms": unit * 1e3, "eager longest": max(eager) / unit,
        "compile() s": compiling, "first": first / unit, "longest": max(*until, switch) / unit,
        "median": statistics.median(until) / unit, "switch": switch / unit, "after": statistics.median(after) / unit,
        "calls until then": len(until), "compiled elsewhere": pyframe.counters["compiled_elsewhere"],
    }  # fmt: skip


def measured(program: str, mode: str) -> dict[str, Any]:
    """`row` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "benchmarks.background", "--program", program, "--mode", mode]
        done = subprocess.run(
            line, env={**os.environ, "PYFRAME_CACHE_DIR": folder}, stdout=subprocess.PIPE, text=True, check=True
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--program", choices=PROGRAMS, help="measure this one in this process and print JSON")
    parser.add_argument("--mode", choices=MODES, default="inference")
    chosen = parser.parse_args()
    if chosen.program:
        print(json.dumps(row(chosen.program, chosen.mode)))
    else:
        report("background", [measured(program, mode) for program in PROGRAMS for mode in MODES])


if __name__ == "__main__":
    main()
