"""Measures how much of real models is captured: graphs, breaks and seconds, beside torch.compile's.

    python -m benchmarks.capture [--only SUBSTRING ...] [--quick] [--reuse] [--compare]

Each model runs twice in a process of its own, with a backend that runs the graph as it is, and its result is compared
with eager's. `operators` counts those that run from graphs in the second call. `CPU seconds` is the processor time of
the first call, which other programs on the machine change less than `seconds`. `--reuse` takes the columns of
torch.compile from the last results; columns that were added since are "-". `--compare`, for another Python or torch,
measures `pyframe` alone, writes nothing, and prints each model whose graphs, breaks, reasons of breaks, operators or
equality differ from the last results; exit status 1 if there are more graphs or breaks, or if results differ.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .capture_models import CASES, QUICK
from .harness import RESULTS, report

# Paths of installed packages and of this project, which differ between machines.
_OUTSIDE = re.compile(r"/\S*?/(?:site-packages|lib/python3\.\d+)/|" + re.escape(f"{Path(__file__).parents[1]}/"))


# ---- in the child ----
def equal(a: Any, b: Any, seen: set[int] | None = None) -> bool:
    """Whether two results have the same type and structure, and tensors equal up to rounding. (Some models use another
    algorithm if they find that they are being compiled.)"""
    import torch

    seen = set() if seen is None else seen
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and _close(a, b)
    if type(a) is not type(b):
        return False
    if id(a) in seen:
        return True
    seen.add(id(a))
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(equal(a[key], b[key], seen) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(equal(x, y, seen) for x, y in zip(a, b, strict=True))
    if hasattr(a, "__dict__") and not isinstance(a, type):
        return equal(vars(a), vars(b), seen)
    return bool(a == b)


def _close(a: Any, b: Any) -> bool:
    import torch

    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))


def run_model(name: str, system: str) -> dict[str, Any]:
    """The row of the model `name` for `system`."""
    import copy

    import torch

    model, inputs = CASES[name]()
    expected_model = copy.deepcopy(model)

    def run(fn: Any) -> Any:
        torch.manual_seed(1)
        return fn(**copy.deepcopy(inputs))

    grad = torch.set_grad_enabled(model.training or name.startswith("hard/"))
    with grad:
        want = [run(expected_model) for _ in range(2)]
        measured, got = (_ours if system == "pyframe" else _theirs)(model, run)
    same_state = equal(dict(expected_model.state_dict()), dict(model.state_dict()))
    measured["reasons"] = [_OUTSIDE.sub("", reason) for reason in measured["reasons"]]
    measured["equal"] = same_state and all(map(equal, want, got))
    return measured


class Operators:
    """A backend that runs graphs as they are, and counts them and the operators that run from them."""

    def __init__(self) -> None:
        self.graphs = self.ran = 0

    def backend(self, gm: Any, inputs: Any) -> Any:
        self.graphs += 1
        size = sum(node.op.startswith("call_") for node in gm.graph.nodes)

        def run(*args: Any) -> Any:
            self.ran += size
            return gm.forward(*args)

        return run


class Clock:
    """Measures the time since it was created, in seconds: by the clock, and of the processor."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def spent(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.wall, "cpu_seconds": time.process_time() - self.cpu}


def _ours(model: Any, run: Any) -> tuple[dict[str, Any], list[Any]]:
    import pyframe
    from pyframe.metrics import counters

    operators = Operators()
    compiled = pyframe.compile(model, backend=operators.backend)
    reasons: list[str] = []
    with _break_reasons(reasons):
        clock = Clock()
        got = [run(compiled)]
        spent = clock.spent()
    counted = {"graphs": counters["graphs"], "breaks": sum(counters["graph_breaks"].values())}
    operators.ran = 0
    clock = Clock()
    got.append(run(compiled))
    spent["cpu_seconds_again"] = clock.spent()["cpu_seconds"]
    counted |= {"operators": operators.ran, "recompiles": counters["recompiles"]}
    return {**counted, **spent, "reasons": reasons}, got


def _break_reasons(reasons: list[str]) -> Any:
    """Collects the logged reason of each break."""
    from unittest import mock

    from pyframe import driver

    plain = driver.show

    def log(topic: str, message: Any, *args: Any) -> None:
        if topic == "breaks":
            reasons.append(str(message))
        plain(topic, message, *args)

    return mock.patch.object(driver, "show", log)


def _theirs(model: Any, run: Any) -> tuple[dict[str, Any], list[Any]]:
    import torch
    from torch._dynamo.utils import counters

    operators = Operators()
    compiled = torch.compile(model, backend=operators.backend)
    clock = Clock()
    got = [run(compiled)]
    measured = {
        **clock.spent(),
        "graphs": operators.graphs,
        "breaks": max(sum(counters["graph_break"].values()), operators.graphs - 1),
        "reasons": [str(reason) for reason in counters["graph_break"]],
    }
    operators.ran = 0
    got.append(run(compiled))
    return {**measured, "operators": operators.ran}, got


def child(name: str, system: str, pipe: Connection) -> None:
    try:
        pipe.send(run_model(name, system))
    except Exception as error:  # noqa: BLE001  reported as the model's result
        pipe.send({"error": f"{type(error).__name__}: {error}"})


# ---- in the parent ----
def measure(name: str, system: str, timeout: float) -> dict[str, Any]:
    """Runs a model in a fork of this process, which has imported the libraries and run nothing."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=child, args=(name, system, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(timeout) else {"error": f"no end after {timeout:.0f} s"}
    except EOFError:
        process.join()
        return {"error": f"the process ended with exit code {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def preload() -> None:
    """Import what every child needs."""
    import importlib

    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    for library in ("transformers.modeling_utils", "torch._dynamo", "pyframe"):
        importlib.import_module(library)


def row(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    def of(measured: dict[str, Any], field: str) -> Any:
        return measured.get(field, "-")

    return {
        "model": name,
        "equal": ours.get("equal", "error"),
        "graphs": of(ours, "graphs"),
        "breaks": of(ours, "breaks"),
        "operators": of(ours, "operators"),
        "seconds": of(ours, "seconds"),
        "CPU seconds": of(ours, "cpu_seconds"),
        "CPU seconds again": of(ours, "cpu_seconds_again"),
        "torch.compile graphs": of(theirs, "graphs"),
        "torch.compile breaks": of(theirs, "breaks"),
        "torch.compile operators": of(theirs, "operators"),
        "torch.compile seconds": of(theirs, "seconds"),
        "torch.compile CPU seconds": of(theirs, "cpu_seconds"),
        "first break": _shortened(ours.get("error") or next(iter(ours.get("reasons", ())), "")),
        "torch.compile error": _shortened(theirs.get("error", "")),
    }


def _shortened(reason: str, limit: int = 200) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= limit else text[:limit] + " ..."


def summary(rows: list[dict[str, Any]]) -> str:
    ran = [row for row in rows if row["equal"] != "error"]
    whole = [row for row in ran if row["breaks"] == 0]
    compared = [row for row in ran if isinstance(row["torch.compile graphs"], int)]
    more = [row for row in compared if row["graphs"] > row["torch.compile graphs"] > 0]
    none = [row["model"] for row in compared if row["torch.compile graphs"] == 0]
    wrong = [row["model"] for row in rows if row["equal"] is False]
    failed = [row["model"] for row in rows if row["equal"] == "error"]
    lines = [
        f"{len(rows)} models: {len(whole)} without breaks ({len(whole) / max(len(rows), 1):.1%}), "
        f"{len(more)} of {len(compared)} with more graphs than torch.compile, {len(wrong)} not equal to eager, "
        f"{len(failed)} that did not run",
        *_capture_times(rows),
    ]
    for label, names in (
        ("with breaks", [row["model"] for row in ran if row["breaks"]]),
        ("more graphs", [f"{row['model']} ({row['graphs']}, {row['torch.compile graphs']})" for row in more]),
        ("not captured by torch.compile at all", none), ("not equal", wrong), ("did not run", failed),
    ):  # fmt: skip
        if names:
            lines.append(f"{label}: {', '.join(names)}")
    return "\n".join(lines)


def _capture_times(rows: list[dict[str, Any]]) -> list[str]:
    """Lines with the processor time of all first calls, with and without that of a second call, which only runs the
    operators (in both systems the same)."""
    columns = ("CPU seconds", "torch.compile CPU seconds")
    timed = [row for row in rows if all(isinstance(row[column], float) for column in (*columns, "CPU seconds again"))]
    if not timed:
        return []
    ours, theirs, again = (sum(row[column] for row in timed) for column in (*columns, "CPU seconds again"))
    return [
        f"first calls of {len(timed)} models: {ours:.0f} s of CPU, torch.compile {theirs:.0f} s ({ours / theirs:.2f}); "
        f"without the {again:.0f} s of a second call: {ours - again:.0f} and {theirs - again:.0f} s "
        f"({(ours - again) / (theirs - again):.2f})"
    ]


def last_results() -> dict[str, dict[str, Any]]:
    path = RESULTS / "capture.json"
    return json.loads(path.read_text())["measured"] if path.exists() else {}


COMPARED = ("graphs", "breaks", "operators", "recompiles", "equal", "error", "reasons")


def compare(names: list[str], timeout: float) -> int:
    """Measures these models and prints how they differ from the last results; returns how many models are worse."""
    last, worse, differ = last_results(), 0, 0
    for name in names:
        before, now = last.get(name, {}).get("pyframe"), measure(name, "pyframe", timeout)
        if before is None:
            print(f"{name}: no last result", flush=True)
            continue
        changes = [
            f"{field} {before.get(field)} -> {now.get(field)}"
            for field in COMPARED if before.get(field) != now.get(field)
        ]  # fmt: skip
        bad = not now.get("equal") or any(now[field] > before[field] for field in ("graphs", "breaks"))
        differ, worse = differ + bool(changes), worse + bad
        if changes:
            print(f"{name}{' (worse)' if bad else ''}: {'; '.join(changes)}", flush=True)
    print(f"{len(names)} models: {differ} differ from the last results, {worse} of them worse")
    return worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="models whose name contains one of these")
    parser.add_argument("--quick", action="store_true", help="a small selection")
    parser.add_argument("--reuse", action="store_true", help="torch.compile's columns from the last results")
    parser.add_argument("--merge", action="store_true", help="keep the last results of the models not run")
    parser.add_argument("--compare", action="store_true", help="measure pyframe alone; print differences only")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for one model in one system")
    options = parser.parse_args()
    names = [n for n in (QUICK if options.quick else CASES) if not options.only or any(o in n for o in options.only)]
    if not names:
        raise SystemExit(f"no model matches {options.only}; there are: {', '.join(CASES)}")
    preload()
    if options.compare:
        raise SystemExit(min(compare(names, options.timeout), 1))
    last = last_results()
    measured = last if options.merge else {}
    for name in names:
        known = last.get(name, {}).get("torch.compile") if options.reuse else None
        theirs = known if known and "error" not in known else measure(name, "torch.compile", options.timeout)
        measured[name] = {"pyframe": measure(name, "pyframe", options.timeout), "torch.compile": theirs}
        each = row(name, measured[name]["pyframe"], theirs)
        print(*each.values(), sep=" | ", flush=True)
    rows = [row(name, **_both(measured[name])) for name in CASES if name in measured]
    text = summary(rows)
    report("capture", rows, summary=text, measured=measured)
    print(text)


def _both(measured: dict[str, Any]) -> dict[str, Any]:
    return {"ours": measured["pyframe"], "theirs": measured["torch.compile"]}


if __name__ == "__main__":
    main()
