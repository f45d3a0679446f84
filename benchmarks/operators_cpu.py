"""Times single operators on the CPU, in inference and in training, each in two sizes.

    python -m benchmarks.operators_cpu [--threads 1] [--only NAME] [--train] [--resume] [--output FOLDER]

`--train` is for the rows of training only (the operator, and the gradients of its floating-point arguments), `--infer`
for the others. Without either both are run. `--only`: the operators whose name contains this. `--resume`: keep the rows
that the results have. The systems are timed in turn, in samples of some calls; ratios are medians over the samples.
Results and gradients of each row are compared with those that eager finds in float64.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import pyframe

from .harness import RESULTS, geometric_mean, machine, table, write_results
from .kernels_cpu import samples
from .programs import relative_error, tensors
from .programs_operators import OPERATORS, SIZES, Operator

TOLERANCE = 2e-5  # of the largest value, if twice eager's error is not greater
LEAST = 0.95  # rows below this are listed
MODES = ("inference", "training")
Row = dict[str, Any]


def step(fn: Callable[..., Any], args: Sequence[torch.Tensor], grads: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a call, and the gradients of its floating-point arguments for the gradients of the results."""
    inputs = [x for x in args if x.requires_grad]
    out = tensors(fn(*args))
    ends = [x for x in out if x.requires_grad]
    found = torch.autograd.grad(ends, inputs, grads, allow_unused=True)
    return [x.detach() for x in out] + [g for g in found if g is not None]


def gradients(op: Operator, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradient of each differentiable result of a call."""
    torch.manual_seed(2)
    return [torch.randn_like(x) for x in tensors(op.fn(*args)) if x.requires_grad]


def widened(args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The arguments in double precision."""
    found = []
    for x in args:
        wide = x.detach().to(torch.complex128 if x.is_complex() else torch.float64)
        found.append(wide.requires_grad_(x.requires_grad) if x.is_complex() or x.is_floating_point() else x)
    return found


def error(got: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The largest error as a share of the largest value of its tensor."""

    def flat(out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.view_as_real(x).double() if x.is_complex() else x.double() for x in out]

    return max((relative_error([a], [b]) for a, b in zip(flat(got), flat(exact), strict=True)), default=0.0)


def measured(name: str, size: str, mode: str, seconds: float) -> Row:
    """Compiles, checks and times one row."""
    op, training = OPERATORS[name], mode == "training"
    args = [x.requires_grad_() if training and x.is_floating_point() else x for x in op.args(size)]
    torch.compiler.reset()
    pyframe.reset()
    fns = {"eager": op.fn, "torch.compile": torch.compile(op.fn, dynamic=False), "pyframe": pyframe.compile(op.fn)}
    with torch.set_grad_enabled(training):
        grads = gradients(op, args) if training else []
        if training:
            calls = {system: (lambda fn=fn: step(fn, args, grads)) for system, fn in fns.items()}
            wide = widened(args)
            exact = step(op.fn, wide, [g.double() for g in grads])
        else:
            calls = {system: (lambda fn=fn: fn(*args)) for system, fn in fns.items()}
            exact = tensors(op.fn(*widened(args)))
        errors = {system: error(tensors(call()), exact) for system, call in calls.items() if system != "torch.compile"}
        right = [x.dtype for x in tensors(calls["pyframe"]())] == [x.dtype for x in tensors(calls["eager"]())]
        times = samples(calls, seconds)
    ratio = {s: statistics.median(a / b for a, b in zip(found, times["pyframe"])) for s, found in times.items()}
    return {
        "operator": name, "size": size, "mode": mode,
        **{f"{system} us": statistics.median(found) * 1e6 for system, found in times.items()},
        "eager / pyframe": ratio["eager"], "torch.compile / pyframe": ratio["torch.compile"],
        "relative error": errors["pyframe"],
        "right": right and errors["pyframe"] <= max(TOLERANCE, 2 * errors["eager"]),
    }  # fmt: skip


def _title(row: Mapping[str, Any]) -> str:
    return f"{row['operator']}, {row['size']}, {row['mode']}"


def summary(rows: Sequence[Row]) -> list[str]:
    """The means of inference and training, and the rows that are slower or not right."""
    lines = [f"{len(rows)} rows, {len({r['operator'] for r in rows})} operators"]
    for mode in dict.fromkeys(r["mode"] for r in rows):
        group = [r for r in rows if r["mode"] == mode]
        for system in ("eager", "torch.compile"):
            key = f"{system} / pyframe"
            mean = geometric_mean([r[key] for r in group])
            slow = sorted((r for r in group if r[key] < LEAST), key=lambda r: r[key])
            names = "; ".join(f"{r['operator']}, {r['size']} ({r[key]:.2f})" for r in slow)
            lines.append(f"{mode}, {key}: geometric mean {mean:.2f}; below {LEAST}: {len(slow)}: {names}")
    return [*lines, f"not right: {'; '.join(_title(r) for r in rows if not r['right']) or 'none'}"]


def planned(only: str, modes: Sequence[str]) -> list[tuple[str, str, str]]:
    """The rows asked for: operator, size, mode."""
    return [
        (name, size, mode)
        for mode in modes
        for name, op in OPERATORS.items()
        for size in SIZES
        if only.lower() in name.lower() and (op.trains or mode == "inference")
    ]


def main() -> None:
    """Runs the rows asked for and writes the results after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name contains this; results are not written")
    parser.add_argument("--train", action="store_true", help="training only")
    parser.add_argument("--infer", action="store_true", help="inference only")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=0.4, help="about how long a row is timed")
    parser.add_argument("--resume", action="store_true", help="keep the rows there are, and run the others")
    parser.add_argument("--output", type=Path, default=None, help=f"folder of the results (default: {RESULTS})")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    modes = [m for m, one in zip(MODES, (options.infer, options.train)) if one] or MODES
    folder = options.output or RESULTS
    name = "operators_cpu" + f"_{options.threads}_threads" * bool(options.threads)
    rows: dict[str, Row] = {}
    if options.resume and (folder / f"{name}.json").exists():
        rows = {_title(row): row for row in json.loads((folder / f"{name}.json").read_text())["rows"]}
    for operator, size, mode in planned(options.only, modes):
        title = _title({"operator": operator, "size": size, "mode": mode})
        if title in rows:
            continue
        rows[title] = measured(operator, size, mode, options.seconds)
        print(table([rows[title]]).splitlines()[-1], flush=True)
        if not options.only or options.output:
            found = list(rows.values())
            write_results(name, found, folder, machine(), summary=summary(found))
    print("\n".join(summary(list(rows.values()))) if rows else "no rows")


if __name__ == "__main__":
    main()
