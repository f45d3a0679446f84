"""Measures what the option `verify` costs per call: a graph that is checked at 1% of its calls, beside one that never
is.

    python -m benchmarks.verify_cost

`verify=0.01` checks each call with a probability of 1%, and spends at most 1% of the time on checks. Rounds with and
without the option alternate. "us" is the median of the rounds, most of which contain no check: the cost of counting
calls. "least" compares the fastest rounds, "total" the time of all rounds, checks included. Checks are as rare as their
share of the time requires; if "checks" is 0, the ratios say nothing about their cost.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import pyframe
from inductor.verify_policy import budget
from pyframe.metrics import counters

from .call_overhead import tiny
from .harness import report
from .programs import make_gpt, make_mlp

RATE = 0.01
GOAL = 1.02
CHECKED = "0.01"


def per_call(fn: Callable[..., Any], args: tuple[Any, ...], calls: int) -> float:
    """Seconds of one call, the mean of `calls`."""
    start = time.perf_counter()
    for _ in range(calls):
        fn(*args)
    return (time.perf_counter() - start) / calls


def rounds_of(
    variants: dict[str, Callable[..., Any]], args: tuple[Any, ...], rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds per call of each variant in each round, the variants in turn and every second round backwards.

    Checks may take a share of the time since `budget.start`; the time of the variants that are not checked is taken
    out of it, as in a process that has none."""
    samples: dict[str, list[float]] = {name: [] for name in variants}
    budget.start, budget.spent = time.perf_counter(), 0.0
    for i in range(rounds):
        for name in list(variants)[:: 1 if i % 2 else -1]:
            start = time.perf_counter()
            samples[name].append(per_call(variants[name], args, calls))
            if name != CHECKED:
                budget.start += time.perf_counter() - start
    return samples


def row(name: str, fn: Callable[..., Any], args: tuple[Any, ...], calls: int, seconds: float) -> dict[str, Any]:
    """Times of one program. `calls` of a variant make a round; the rounds take about `seconds` in all."""
    off, again = pyframe.compile(fn), pyframe.compile(fn)  # the same twice: how far off a ratio of 1 is measured
    variants = {"off": off, "off again": again, CHECKED: pyframe.compile(fn, options={"verify": RATE})}
    for each in variants.values():
        per_call(each, args, 20)
    rounds = max(20, round(seconds / (3 * calls * per_call(off, args, calls))))
    before = counters["verified"]
    times = rounds_of(variants, args, rounds, calls)
    checks, on, off_times = counters["verified"] - before, times[CHECKED], times["off"]
    return {
        "program": name,
        "off us": statistics.median(off_times) * 1e6,
        "0.01 us": statistics.median(on) * 1e6,
        "off again / off": statistics.median(times["off again"]) / statistics.median(off_times),
        "0.01 / off": statistics.median(on) / statistics.median(off_times),
        "least: off again / off": min(times["off again"]) / min(off_times),
        "least: 0.01 / off": min(on) / min(off_times),
        "total: 0.01 / off": sum(on) / sum(off_times),
        "calls": rounds * calls,
        "checks": checks,
        "checks' share": budget.spent / (sum(on) * calls),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=30, help="for each program")
    seconds = parser.parse_args().seconds
    with torch.no_grad():
        rows = [
            row("x.sin()+1, 4 elements", tiny, (torch.randn(4),), 500, seconds),
            row("12-layer MLP, 8x64", *make_mlp(), 20, seconds),
            row("GPT, 6 layers, d=384, T=256", *make_gpt(), 1, seconds),
        ]
    report("verify_cost", rows, goal=GOAL)


if __name__ == "__main__":
    main()
