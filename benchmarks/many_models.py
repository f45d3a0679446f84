"""Compares eager, torch.compile and pyframe on the models of `benchmarks.capture`: how many run, and how fast.

    python -m benchmarks.many_models --workers 15 --budget 300            # inference on a GPU
    python -m benchmarks.many_models --train --workers 15 --budget 300    # training steps
    python -m benchmarks.many_models --shard 0/4 --output part0           # every fourth model, for one of several GPUs
    python -m benchmarks.many_models --join part0 part1 part2 part3       # one table of such parts
    python -m benchmarks.many_models --device cpu --only hf/bert          # as a test

The models are small versions of the architectures of transformers, timm and other libraries that are installed, with
random weights, so most of the time of a call on a GPU is the host's: read the ratios of wall time too. A model that
returns no loss is trained by the mean square of the floating-point tensors in its result. Each row is measured as in
`benchmarks.zoo`, in the default modes and with empty caches; "right" and "first" mean what they mean there.

pyframe is called so often before it is timed that it has chosen between its compiled graphs and ATen.

The share that runs is of the models that eager runs: all calls complete, and results, loss, gradients and buffers are
right. The means are over the rows that all three systems complete and in which both compilers are right.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from .accuracy import GOOD, preload
from .accuracy_jobs import NEEDS
from .capture_models import CASES
from .harness import geometric_mean, write_results
from .zoo import COMPILERS, SYSTEMS, Case, Results, Row, measure, with_measuring_options

WARM = 100  # calls, by which pyframe has chosen between each compiled graph and ATen
ENOUGH = 150.0  # seconds of the budget for one part, so that slow first calls end
ROWS_PER_WORKER = 2  # that are prepared before they are timed: their processes wait with what they compiled in memory


class WithLoss(nn.Module):
    """A model that returns its loss alone: the one that it computes itself, or the mean square of its results."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> torch.Tensor:
        out = self.model(**inputs)
        loss = out.get("loss") if isinstance(out, Mapping) else None
        if loss is not None:
            return loss
        squares = [x.float().square().mean() for x in tensors(out) if x.is_floating_point() and x.requires_grad]
        return sum(squares[1:], squares[0])


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a result that may hold containers and model outputs."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors(each)


@dataclass(frozen=True)
class Model(Case):
    """A model of `benchmarks.capture`, with its own inputs."""

    @property
    def title(self) -> str:
        return self.model

    def make(self, device: str) -> tuple[nn.Module, dict[str, Any]]:
        """The model and its keyword arguments, made on the CPU; the caller moves them to its device."""
        torch.manual_seed(0)
        model, inputs = CASES[self.model]()
        return (WithLoss(model) if self.mode == "train" else model), inputs


def selected(train: bool, only: Sequence[str], shard: tuple[int, int]) -> list[Case]:
    """Every n-th of the models asked for, beginning with the k-th, for a shard (k, n)."""
    names = [n for n in CASES if (package := NEEDS.get(n.split("/")[0])) is None or find_spec(package)]
    names = [n for n in names if not n.startswith("hard/") and (not only or any(o in n for o in only))]
    if not train:  # the same model is there without this suffix
        names = [n for n in names if not n.endswith("_train")]
    return [Model(name, 1, "train" if train else "infer", True) for name in names[shard[0] :: shard[1]]]


def runs(row: Row, system: str) -> bool:
    return row.right.get(system) in GOOD


def summary(rows: Sequence[Row]) -> list[str]:
    """How many models each compiler runs, and the geometric means over eager."""
    asked = [row for row in rows if row.right]
    lines = [f"{len(rows)} models, of which {len(asked)} ran in eager and within the time"]
    lines += [f"{s} runs {sum(runs(row, s) for row in asked)} of {len(asked)}" for s in COMPILERS]
    both = [row for row in asked if all(runs(row, s) for s in COMPILERS) and len(row.time) == len(SYSTEMS)]
    for wall in (False, True):
        what = "wall time" if wall else "time"
        for system in COMPILERS if both else ():
            times = [(row.wall if wall else row.time) for row in both]
            mean = geometric_mean([t["eager"] / t[system] for t in times])
            slower = sum(t["eager"] / t[system] < 0.98 for t in times)
            line = f"eager / {system}, {what}: geometric mean {mean:.2f} of {len(both)}"
            lines.append(f"{line}, {slower} more than 2 % slower")
    first = [row.first["torch.compile"] / row.first["pyframe"] for row in both if math.isfinite(row.first["pyframe"])]
    if first:
        lines.append(f"first calls, torch.compile / pyframe: geometric mean {geometric_mean(first):.2f}")
    for system in COMPILERS:
        wrong = [row for row in asked if not runs(row, system)]
        lines += [f"not right with {system}: {row.case.title}: {row.right[system]}" for row in wrong]
    return lines


class Table(Results):
    """The rows of this benchmark by model."""

    case_type = Model

    def write(self) -> str:
        rows = [self.rows[title] for title in sorted(self.rows)]
        extra = {"summary": summary(rows), "measured": [asdict(row) for row in rows]}
        return write_results(self.name, [row.cells() for row in rows], self.folder, self.machine, **extra)


def in_parts(cases: Sequence[Case], options: argparse.Namespace, results: Results) -> None:
    """Measures the rows, a few for each worker at a time, within the time budget."""
    size = ROWS_PER_WORKER * options.workers
    end = time.monotonic() + options.budget
    parts = [cases[k : k + size] for k in range(0, len(cases), size)]
    for k, part in enumerate(parts):
        own = argparse.Namespace(**vars(options))
        if options.budget:
            left = end - time.monotonic()
            if left < 0:
                return
            own.budget = max(left / (len(parts) - k), min(left, ENOUGH))
        measure(part, own, results)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--train", action="store_true", help="training instead of inference")
    parser.add_argument("--only", nargs="*", default=[], help="models whose name contains one of these")
    parser.add_argument("--shard", default="0/1", help="K/N: every N-th model, beginning with number K")
    options = with_measuring_options(parser, arguments, seconds=1.5)
    options.mode, options.warm = "default", WARM
    name = f"many_models_{options.device}_{'training' if options.train else 'inference'}"
    results = Table(name, options.output, options.resume)
    results.join(options.join)
    if not options.join:
        preload()
        own, of = map(int, options.shard.split("/"))
        cases = [c for c in selected(options.train, options.only, (own, of)) if c.title not in results.rows]
        in_parts(cases, options, results)
    print(results.write())


if __name__ == "__main__":
    main()
