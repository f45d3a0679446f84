"""Timing and printing, shared by all benchmarks."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
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
# Benchmarks are of compiled graphs; pyframe would run ATen in some calls, and in all where that is faster.
os.environ.setdefault("PYFRAME_MEASURE", "0")


def interleaved(variants: Mapping[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Median seconds per call of each variant. Each round times ``calls`` calls of every variant in turn, so that a
    change in the machine's speed affects all alike."""
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, fn in variants.items():
            start = time.perf_counter()
            for _ in range(calls):
                fn()
            samples[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(s) for name, s in samples.items()}


MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def in_mode(name: str, mode: str) -> str:
    """The name of the results of a benchmark in one of torch.compile's modes."""
    return name if mode == "default" else f"{name}_{mode.replace('-', '_')}"


def systems(fn: Any, args: Sequence[Any], theirs: Any, ours: Any) -> dict[str, Callable[[], Any]]:
    """The functions that are timed, interleaved, by name of the system."""
    return {"eager": lambda: fn(*args), "torch.compile": lambda: theirs(*args), "pyframe": lambda: ours(*args)}


def compiled_by(system: str, model: torch.nn.Module, mode: str) -> Callable[..., Any]:
    """The model under eager, torch.compile or pyframe, in one of torch.compile's modes."""
    if system == "eager":
        return model
    if system == "torch.compile":
        return torch.compile(model, mode=mode)
    import pyframe  # here, so that a process that does not use it does not import it

    return pyframe.compile(model, mode=mode)


def with_idle_gpu(fn: Callable[[], Any], calls: int) -> Callable[[], None]:
    """Makes `calls` calls of `fn` and waits until the GPU has completed them."""

    def run() -> None:
        for _ in range(calls):
            fn()
        torch.cuda.synchronize()

    return run


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def gpu_interleaved(variants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of GPU time per call of each variant, one call of each in turn.

    The cache is flushed before each call, and the GPU kept busy while the call is queued, so that the time between the
    two events holds no waiting for the host. The flush ends by reading a buffer several times as large as the cache:
    what it leaves there equals the memory, so that no call pays for writing back what others have written."""
    flush = torch.empty(64 << 20, dtype=torch.float32, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, fn in variants.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            flush.sum()
            torch.cuda._sleep(2_000_000)
            start.record()
            fn()
            end.record()
            torch.cuda.synchronize()
            samples[name].append(start.elapsed_time(end) * 1e-3)
    return {name: statistics.median(s) for name, s in samples.items()}


def host_interleaved(variants: Mapping[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Median seconds for which a call occupies the host, with an idle GPU before each round of `calls` calls."""
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, fn in variants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                fn()
            samples[name].append((time.perf_counter() - start) / calls)
    torch.cuda.synchronize()
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
    facts = {**versions, "cpu": cpu, "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        facts |= {"gpu": torch.cuda.get_device_name(), "triton": importlib.metadata.version("triton")}
    return facts


def write_results(
    name: str, rows: Sequence[Mapping[str, Any]], folder: Path, facts: Mapping[str, Any], **extra: Any
) -> str:
    """Writes the JSON and the table of a benchmark to a folder; returns what the text file holds. `facts`: about the
    machine; `extra`: more entries of the JSON, of which a list of lines `summary` stands above the table."""
    data = described(name, rows, facts, **extra)
    lines = [f"{data['command']}  ({data['date']}, {data['machine']})", "", *extra.get("summary", []), "", table(rows)]
    text = "\n".join(lines) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in ((folder / f"{name}.json", json.dumps(data, indent=1) + "\n"), (folder / f"{name}.txt", text)):
        part = path.with_suffix(".part")
        part.write_text(content)
        part.replace(path)
    return text


def command_line(module: str, arguments: Sequence[str]) -> str:
    """The command that produced results, without `--output FOLDER`, which has no influence on them."""
    kept, rest = [], iter(arguments)
    for argument in rest:
        if argument == "--output":
            next(rest, None)
        elif not argument.startswith("--output="):
            kept.append(argument)
    return " ".join(["python -m " + module, *kept])


def described(name: str, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], **extra: Any) -> dict[str, Any]:
    """What the JSON of a benchmark holds."""
    return {
        "benchmark": name,
        "command": command_line("benchmarks." + Path(sys.argv[0]).stem, sys.argv[1:]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": dict(facts),
        **extra,
        "rows": list(rows),
    }


def report(name: str, rows: Sequence[Mapping[str, Any]], **extra: Any) -> None:
    """Prints the table and the JSON, and writes both under ``benchmarks/results/``."""
    data = described(name, rows, machine(), **extra)
    text = table(rows)
    print(text)
    print(json.dumps(data))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / f"{name}.txt").write_text(f"{data['command']}  ({data['date']}, {data['machine']})\n\n{text}\n")
