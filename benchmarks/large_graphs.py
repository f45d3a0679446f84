"""Measures the first call of programs with thousands of operators, and how it grows with the number of operators.

    python -m benchmarks.large_graphs                      # torch.compile as well, if it finishes within the limit
    python -m benchmarks.large_graphs --only products --sizes 500 1000 --systems pyframe

Each run is a process of its own with an empty cache. The clock starts after an eager run, before the import of the
compiler. "CPU s" is the processor time of the process and of the C++ compilers that it starts, which does not depend on
other work on the machine. "growth" is that time divided by the time for half as many operators: 2 if the time is
proportional to the size of the graph.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

SYSTEMS = ("torch.compile", "pyframe")
SIZES = (1250, 2500, 5000)


class Residual(nn.Module):
    """Convolution, batch norm, activation and sum: four operators."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.convolution(x)).relu() + x


Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def products(count: int) -> Program:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = x @ w
        return x

    return fn, (torch.ones(8, 8), torch.eye(8))


def pointwise(count: int) -> Program:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(count // 2):
            x = torch.sin(x) + w
        return x

    return fn, (torch.ones(8, 8), torch.eye(8))


def linear_layers(count: int) -> Program:
    layers = [layer for _ in range(count // 2) for layer in (nn.Linear(8, 8), nn.ReLU())]
    return nn.Sequential(*layers), (torch.ones(4, 8),)


def residual_network(count: int) -> Program:
    return nn.Sequential(*(Residual() for _ in range(count // 4))), (torch.ones(2, 4, 8, 8),)


# name: the program, and whether its gradients are computed, too
PROGRAMS: dict[str, tuple[Callable[[int], Program], bool]] = {
    "products": (products, False),
    "pointwise": (pointwise, False),
    "products, training": (products, True),
    "linear layers, training": (linear_layers, True),
    "residual network, training": (residual_network, True),
}


def child(name: str, count: int, system: str) -> None:
    """Prints the wall and processor seconds of the first call."""
    make, train = PROGRAMS[name]
    fn, args = make(count)
    args = tuple(x.requires_grad_(train) for x in args)

    def run(call: Callable[..., Any]) -> None:
        with torch.set_grad_enabled(train):
            out = call(*args)
            if train:
                out.sum().backward()

    run(fn)
    start, used = time.perf_counter(), processor_seconds()
    if system == "pyframe":
        import pyframe

        run(pyframe.compile(fn, fullgraph=True))
    else:
        run(torch.compile(fn, fullgraph=True))
    print("SECONDS", json.dumps([time.perf_counter() - start, processor_seconds() - used]))


def processor_seconds() -> float:
    """Of this process and of the processes that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def first_call(name: str, count: int, system: str, limit: float) -> tuple[float, float] | str:
    """Wall and processor seconds in a new process, or why there are none."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYFRAME_CACHE_DIR": f"{cache}/pyframe", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        env["PYFRAME_STRICT"] = "internal"
        command = [sys.executable, "-m", "benchmarks.large_graphs", "--child", name, str(count), system]
        try:
            out = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            return f"over {limit:.0f} s"
    for line in out.stdout.splitlines():
        if line.startswith("SECONDS "):
            wall, used = json.loads(line.removeprefix("SECONDS "))
            return wall, used
    last = (out.stderr.strip().splitlines() or [f"exit code {out.returncode}"])[-1]
    return last.split(":")[0][:40]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=3, metavar=("PROGRAM", "OPERATORS", "SYSTEM"), help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", default=[], help="programs whose name contains one of these")
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES), help="numbers of operators")
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one run")
    options = parser.parse_args()
    if options.child:
        name, count, system = options.child
        child(name, int(count), system)
        return
    from .harness import report, table

    rows: list[dict[str, Any]] = []
    for name in PROGRAMS:
        if options.only and not any(part in name for part in options.only):
            continue
        used: dict[tuple[str, int], float] = {}
        for count in options.sizes:
            row: dict[str, Any] = {"program": name, "operators": count}
            for system in options.systems:
                found = first_call(name, count, system, options.limit)
                wall, spent = (found, found) if isinstance(found, str) else found
                if isinstance(spent, float):
                    used[system, count] = spent
                half = used.get((system, count // 2))
                row |= {f"{system} s": wall, f"{system} CPU s": spent}
                row[f"{system} growth"] = spent / half if half and isinstance(spent, float) else "-"
            rows.append(row)
            print(table(rows[-1:]), flush=True)
    if not options.only:
        report("large_graphs", rows, limit=options.limit)


if __name__ == "__main__":
    main()
