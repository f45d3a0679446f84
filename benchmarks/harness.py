"""Timing and printing, shared by all benchmarks."""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def interleaved(variants: Mapping[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Median seconds per call of each variant.  Each round times ``calls`` calls of every variant in turn, so that
    a change in the machine's speed falls on all alike."""
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, fn in variants.items():
            start = time.perf_counter()
            for _ in range(calls):
                fn()
            samples[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(s) for name, s in samples.items()}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "(no rows)"
    columns = list(rows[0])
    text = [[str(c) for c in columns]] + [[_cell(r[c]) for c in columns] for r in rows]
    widths = [max(len(line[i]) for line in text) for i in range(len(columns))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in text]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.2f}"
    return str(value)


def machine() -> dict[str, Any]:
    cpu = ""
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {**versions, "cpu": cpu, "threads": torch.get_num_threads()}


def report(name: str, rows: Sequence[Mapping[str, Any]], **extra: Any) -> None:
    """Prints the table and the JSON, and writes both under ``benchmarks/results/``."""
    data = {
        "benchmark": name,
        "command": "python -m " + " ".join(["benchmarks." + Path(sys.argv[0]).stem, *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        **extra,
        "rows": list(rows),
    }
    text = table(rows)
    print(text)
    print(json.dumps(data))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / f"{name}.txt").write_text(f"{data['command']}  ({data['date']}, {data['machine']})\n\n{text}\n")
