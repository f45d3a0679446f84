"""Draws the committed results: PNG and SVG files beside them in benchmarks/results/.

    python -m benchmarks.plots [--only zoo_inference kernels ...] [--output FOLDER]

Needs matplotlib (the extra `plots`). Every bar is a number of a JSON file in benchmarks/results/; a plot whose results
are missing is left out. Times of the models and kernels are divided by eager's, so that models of all sizes fit on one
axis; the time of eager itself stands at its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .harness import RESULTS

SYSTEMS = ("eager", "torch.compile", "pyframe")
COLORS = {"eager": "#9aa5b1", "torch.compile": "#e0883a", "pyframe": "#2f6db5"}

MAX_GROUPS = 15  # in one column


@dataclass(frozen=True)
class Bars:
    """Groups of bars: `values[system][k]` is the bar of a system in group k, None where it was not measured. `labels`
    has the texts at the bars of a system; without them, the values."""

    title: str
    axis: str
    groups: Sequence[str]
    values: Mapping[str, Sequence[float | None]]
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)


def number(value: Any) -> float | None:
    """A cell of a result as a number; None if nothing was measured."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def over_eager(title: str, data: Mapping[str, Any], name: str, unit: str) -> Bars:
    """The times of each row relative to eager's, which stands at its bar; rows without a time of eager or pyframe are
    left out."""
    rows = [row for row in data["rows"] if number(row[f"eager {unit}"]) and number(row[f"pyframe {unit}"])]
    values: dict[str, list[float | None]] = {system: [] for system in SYSTEMS}
    for row in rows:
        for system in SYSTEMS:
            measured = number(row[f"{system} {unit}"])
            values[system].append(None if measured is None else measured / row[f"eager {unit}"])
    times = [f"{row[f'eager {unit}']:.3g} {unit}" for row in rows]
    return Bars(title + _where(data), "time / eager's", [row[name] for row in rows], values, {"eager": times})


def _where(data: Mapping[str, Any]) -> str:
    machine = data["machine"]
    return f"\n{machine.get('gpu') or 'CPU, ' + str(machine['threads']) + ' threads'}, torch {machine['torch']}"


def zoo(what: str) -> Callable[[Mapping[str, Any]], Bars]:
    return lambda data: over_eager(what, data, "model", "ms")


def kernels(data: Mapping[str, Any]) -> Bars:
    return over_eager("Kernels", data, "kernel", "us")


def compile_time(data: Mapping[str, Any]) -> Bars:
    """CPU seconds of a first call, which other processes on the machine do not change."""
    values = {system: [number(row[f"{system} CPU s"]) for row in data["rows"]] for system in SYSTEMS[1:]}
    groups = [f"{row['program']}, {row['cache']} cache" for row in data["rows"]]
    return Bars("First call" + _where(data), "CPU seconds", groups, values)


def call_overhead(data: Mapping[str, Any]) -> Bars:
    values = {system: [number(row[f"{system} us"]) for row in data["rows"]] for system in SYSTEMS}
    return Bars("One call" + _where(data), "microseconds", [row["program"] for row in data["rows"]], values)


# The name of a plot, the results that it shows, and how they become bars.
PLOTS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Bars]]] = {
    "zoo_inference": ("zoo_cuda_inference", zoo("Inference")),
    "zoo_inference_reduce_overhead": ("zoo_cuda_inference_reduce_overhead", zoo('Inference, mode="reduce-overhead"')),
    "zoo_training": ("zoo_cuda_training", zoo("Training steps")),
    "kernels": ("kernels_cuda", kernels),
    "compile_time": ("compile_time", compile_time),
    "call_overhead": ("call_overhead", call_overhead),
}


def draw(bars: Bars, paths: Sequence[Path]) -> None:
    """Draws groups of horizontal bars into files, more than MAX_GROUPS in two columns. The format follows from the
    suffix of a file."""
    import matplotlib

    matplotlib.use("Agg")  # no display
    matplotlib.rcParams["svg.hashsalt"] = "pyframe"  # the same results give the same file
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    columns = 1 if len(bars.groups) <= MAX_GROUPS else 2
    rows = -(-len(bars.groups) // columns)
    size = (8 * columns, 1.6 + 0.16 * (len(bars.values) + 1) * rows)
    figure, axes = pyplot.subplots(1, columns, figsize=size, layout="constrained", sharex=True, squeeze=False)
    for column in range(columns):
        _draw_column(axes[0][column], bars, range(column * rows, min((column + 1) * rows, len(bars.groups))))
    figure.suptitle(bars.title, fontsize=11)
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=100, metadata=metadata)
    pyplot.close(figure)


def _draw_column(axes: Any, bars: Bars, groups: range) -> None:
    """Draws the groups with these numbers, from the top."""
    systems = [system for system in SYSTEMS if system in bars.values]
    thick = 0.84 / len(systems)
    for position, system in enumerate(systems):
        measured = [k for k in groups if bars.values[system][k] is not None]
        places = [k + (position - (len(systems) - 1) / 2) * thick for k in measured]
        lengths = [bars.values[system][k] for k in measured]
        drawn = axes.barh(places, lengths, thick * 0.92, color=COLORS[system], label=system)
        texts = [bars.labels[system][k] for k in measured] if system in bars.labels else None
        axes.bar_label(drawn, texts, fmt="%.2f", padding=2, fontsize=7)
    axes.set_yticks(groups, [bars.groups[k] for k in groups], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.1, y=0.01)
    axes.set_xlabel(f"{bars.axis} (less is better)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(PLOTS), default=list(PLOTS), help="these plots")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of the plots")
    options = parser.parse_args(arguments)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("matplotlib is not installed: pip install 'pyframe[plots]'", file=sys.stderr)
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        source, bars_of = PLOTS[name]
        results = RESULTS / f"{source}.json"
        if not results.exists():
            print(f"{name}: there is no {os.path.relpath(results)}")
            continue
        paths = [options.output / f"{name}.{suffix}" for suffix in ("png", "svg")]
        draw(bars_of(json.loads(results.read_text())), paths)
        print(*(os.path.relpath(path) for path in paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
