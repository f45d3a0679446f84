"""Times the patterns of `programs_kernels` on the CPU, each in three sizes (`benchmarks.kernels --device cpu`)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import pyframe

from .harness import RESULTS, geometric_mean, machine, systems, table, write_results
from .programs import relative_error, tensors
from .programs_kernels import PATTERNS, SIZES, Pattern

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # of the largest value, if twice eager's error is not greater
SAMPLE = 3e-4  # seconds that a sample takes at least
ROUNDS = (11, 101)  # samples of each system, at least and at most
WARM = 5  # calls


def errors(pattern: Pattern, ours: Callable[..., Any], args: Sequence[torch.Tensor]) -> tuple[float, float]:
    """The largest error of `ours` as a share of the largest value, and what is allowed; the reference is float64."""

    def results(fn: Callable[..., Any], precise: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        wide = [x.to(torch.complex128) if x.is_complex() else x.double() if x.is_floating_point() else x for x in args]
        return tensors(fn(*(wide if precise else args)))

    def flat(out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.view_as_real(x).double() if x.is_complex() else x.double() for x in out]

    exact, eager, got = results(pattern.fn, True), results(pattern.fn, False), results(ours, False)
    if [(x.dtype, x.shape) for x in got] != [(x.dtype, x.shape) for x in eager]:
        return math.inf, 0.0
    of_ours, of_eager = (relative_error(flat(each), flat(exact)) for each in (got, eager))
    return of_ours, max(TOLERANCE[pattern.dtype], 2 * of_eager)


def samples(fns: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Seconds per call by system, in samples of a few calls, the systems in turn."""

    def sample(fn: Callable[[], Any], calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        return (time.perf_counter() - start) / calls

    for fn in fns.values():
        sample(fn, WARM)
    calls = {name: max(1, math.ceil(SAMPLE / sample(fn, 3))) for name, fn in fns.items()}
    found: dict[str, list[float]] = {name: [] for name in fns}
    end = time.perf_counter() + seconds
    while len(found["eager"]) < ROUNDS[0] or time.perf_counter() < end and len(found["eager"]) < ROUNDS[1]:
        for name, fn in fns.items():
            found[name].append(sample(fn, calls[name]))
    return found


def row(name: str, size: str, seconds: float) -> dict[str, Any]:
    """Compiles and times one pattern in one size. The ratios are medians over the rounds."""
    pattern = PATTERNS[name]
    args = pattern.args(size)
    torch.compiler.reset()
    pyframe.reset()
    ours, theirs = pyframe.compile(pattern.fn), torch.compile(pattern.fn, dynamic=False)
    error, allowed = errors(pattern, ours, args)
    times = samples(systems(pattern.fn, args, theirs, ours), seconds)
    median = {system: statistics.median(found) for system, found in times.items()}
    ratio = {s: statistics.median(a / b for a, b in zip(found, times["pyframe"])) for s, found in times.items()}
    return {
        "kernel": name,
        "size": size,
        **{f"{system} us": seconds * 1e6 for system, seconds in median.items()},
        "eager / pyframe": ratio["eager"],
        "torch.compile / pyframe": ratio["torch.compile"],
        "relative error": error,
        "allowed": allowed,
        "right": error <= allowed,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Means and the rows that are slower or wrong."""
    lines = [f"{len(rows)} rows, {len({r['kernel'] for r in rows})} kernels"]
    for system in ("eager", "torch.compile"):
        key = f"{system} / pyframe"
        mean = geometric_mean([r[key] for r in rows])
        slow = [f"{r['kernel']}, {r['size']} ({r[key]:.2f})" for r in rows if r[key] < 0.95]
        lines += [f"{key}: geometric mean {mean:.2f}", f"below 0.95 of {system}: {len(slow)}: {'; '.join(slow)}"]
    wrong = [f"{r['kernel']}, {r['size']}" for r in rows if not r["right"]]
    return [*lines, f"not right: {len(wrong)}: {'; '.join(wrong)}"]


def run(only: str | None, sizes: Sequence[str], seconds: float) -> list[dict[str, Any]]:
    """The rows of all patterns asked for, printed one by one."""
    rows = []
    with torch.no_grad():
        for name in PATTERNS:
            if only is None or only.lower() in name.lower():
                for size in sizes:
                    rows.append(row(name, size, seconds))
                    print(table(rows[-1:]).splitlines()[-1], flush=True)
    return rows


def main(only: str | None, sizes: Sequence[str] | None, seconds: float, threads: int | None) -> None:
    """Runs the benchmark; writes results if it is complete."""
    if threads:
        torch.set_num_threads(threads)
    rows = run(only, sizes or list(SIZES), seconds)
    lines = summary(rows)
    print("\n".join(lines))
    if only is None and not sizes:
        name = "kernels_cpu" + f"_{threads}_threads" * bool(threads)
        write_results(name, rows, RESULTS, machine(), summary=lines)
