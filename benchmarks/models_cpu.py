"""Times the models of `programs_models_cpu` on the CPU (`benchmarks.models --suite cpu`).

A row is a model in inference or in training (forward, mean square of the results, backward), in one dtype, and for
inference with or without the option `freezing` of both compilers. Calls of the systems take turns; ratios are medians
over the rounds. "right": the error of the results, and of all gradients, against float64 is at most twice eager's, or
within the tolerance.
"""

from __future__ import annotations

import copy
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import pyframe

from .harness import RESULTS, geometric_mean, machine, table, write_results
from .programs import mean_error
from .programs_models_cpu import MODELS, results_of
from .torchvision_stub import stub_torchvision

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
LEAST = 1e-3  # share of the largest norm of gradients to which the errors of smaller ones are compared
ROUNDS = (7, 51)
Row = dict[str, Any]


def settings() -> list[tuple[str, str, bool]]:
    """Mode, dtype and freezing of the rows of one model."""
    dtypes = ["float32"] + ["bfloat16"] * bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    kinds = (("infer", False), ("infer", True), ("train", False))
    return [(mode, dtype, freezing) for dtype in dtypes for mode, freezing in kinds]


def outcome(call: Callable[..., Any], model: nn.Module, args: Sequence[torch.Tensor], mode: str) -> list[torch.Tensor]:
    """The results of a call, or those and the gradients of a step of training."""
    if mode == "infer":
        with torch.no_grad():
            return list(results_of(call(*args)))
    out = results_of(call(*args))
    sum(x.float().square().mean() for x in out).backward()
    found = [*(x.detach() for x in out), *(p.grad for p in model.parameters() if p.grad is not None)]
    model.zero_grad(set_to_none=True)
    return found


def measured(name: str, mode: str, dtype: torch.dtype, freezing: bool, seconds: float) -> Row:
    """Compiles, checks and times one row."""
    torch.manual_seed(0)
    model, args = MODELS[name](mode)
    model = model.train(mode == "train").to(dtype)
    args = tuple(x.to(dtype) if x.is_floating_point() else x for x in args)
    torch.compiler.reset()
    pyframe.reset()
    options: dict[str, Any] = {"freezing": True} if freezing else {}
    models = {system: copy.deepcopy(model) for system in ("eager", "torch.compile", "pyframe")}
    calls = {
        "eager": models["eager"],
        "torch.compile": torch.compile(models["torch.compile"], options=options or None),
        "pyframe": pyframe.compile(models["pyframe"], options=options),
    }
    wide = copy.deepcopy(model).double()
    exact = outcome(wide, wide, [x.double() if x.is_floating_point() else x for x in args], mode)
    error = {
        system: mean_error(outcome(call, models[system], args, mode), exact, LEAST) for system, call in calls.items()
    }
    times: dict[str, list[float]] = {system: [] for system in calls}
    for system, call in calls.items():
        outcome(call, models[system], args, mode)
    end = time.perf_counter() + seconds
    while len(times["eager"]) < ROUNDS[0] or time.perf_counter() < end and len(times["eager"]) < ROUNDS[1]:
        for system, call in calls.items():
            start = time.perf_counter()
            outcome(call, models[system], args, mode)
            times[system].append(time.perf_counter() - start)
    ratio = {s: statistics.median(a / b for a, b in zip(found, times["pyframe"])) for s, found in times.items()}
    return {
        "model": name, "mode": mode, "dtype": str(dtype)[6:], "freezing": freezing,
        **{f"{system} ms": statistics.median(found) * 1e3 for system, found in times.items()},
        "eager / pyframe": ratio["eager"], "torch.compile / pyframe": ratio["torch.compile"],
        "% off float64": 100 * error["pyframe"], "eager % off": 100 * error["eager"],
        "right": error["pyframe"] <= max(TOLERANCE[dtype], 2 * error["eager"]),
    }  # fmt: skip


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The means of each kind of row, and the rows that are slower or not right."""
    lines = []
    for kind in dict.fromkeys((r["mode"], r["dtype"], r["freezing"]) for r in rows):
        mode, dtype, freezing = kind
        group = [r for r in rows if (r["mode"], r["dtype"], r["freezing"]) == kind]
        means = (geometric_mean([r[f"{system} / pyframe"] for r in group]) for system in ("eager", "torch.compile"))
        of_eager, of_theirs = means
        title = f"{mode}, {dtype}{', freezing' * freezing}: {len(group)} models"
        lines.append(f"{title}: geometric mean {of_eager:.2f} x eager, {of_theirs:.2f} x torch.compile")
    for system, least in (("eager", 0.98), ("torch.compile", 1.0)):
        key = f"{system} / pyframe"
        slow = [f"{_title(r)} ({r[key]:.2f})" for r in rows if r[key] < least]
        lines.append(f"slower than {system}: {len(slow)}: {'; '.join(slow)}")
    return [*lines, f"not right: {'; '.join(_title(r) for r in rows if not r['right']) or 'none'}"]


def _title(row: Mapping[str, Any]) -> str:
    return f"{row['model']}, {row['mode']}, {row['dtype']}{', freezing' * row['freezing']}"


def main(
    only: str, modes: Sequence[str], dtypes: Sequence[str], seconds: float, threads: int | None, resume: bool
) -> None:
    """Runs the rows asked for and writes the results after each. `resume`: keep the rows there are."""
    stub_torchvision()
    if threads:
        torch.set_num_threads(threads)
    name = "models_cpu" + f"_{threads}_threads" * bool(threads)
    path = RESULTS / f"{name}.json"
    rows: dict[str, Row] = {}
    if resume and path.exists():
        rows = {_title(row): row for row in json.loads(path.read_text())["rows"]}
    for mode, dtype, freezing in settings():
        for model in MODELS:
            title = _title({"model": model, "mode": mode, "dtype": dtype, "freezing": freezing})
            wanted = only.lower() in model.lower() and mode in modes and dtype in dtypes
            if not wanted or title in rows:
                continue
            rows[title] = measured(model, mode, getattr(torch, dtype), freezing, seconds)
            print(table([rows[title]]).splitlines()[-1], flush=True)
            found = list(rows.values())
            write_results(name, found, RESULTS, machine(), summary=summary(found))
    print("\n".join(summary(list(rows.values()))))
