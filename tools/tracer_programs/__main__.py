"""`python -m tools.tracer_programs [NAME ...] [--backend inductor] [--peer] [--write]`: the programs of this folder.

Each program runs in a process of its own, eagerly and compiled by pyframe; with `--peer` also by torch.compile (always
with a backend that runs the graph as it is). Compared are results, gradients, exceptions, what is printed and the
state that a program names. A line is printed for each program that differs from eager, or that has more graphs or
breaks than the last results have for torch.compile; exit status 1 if there is one. `--write` writes those results.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import multiprocessing
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from . import (  # noqa: F401  their programs register themselves
    autograd_functions,
    builtin_functions,
    checkpoints,
    classes,
    containers,
    contexts,
    control_flow,
    data_dependent,
    distributions,
    enums,
    exceptions,
    functions,
    generators,
    gradient_programs,
    inner_calls,
    module_hooks,
    modules,
    numbers_and_branches,
    numpy_programs,
    optimizers,
    python_classes,
    python_library,
    python_objects,
    saved_tensors,
    settings,
    standard_library,
    tensor_functions,
    tensors,
    transforms,
)
from .comparison import equal, snapshot
from .programs import PROGRAMS, Program

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "tracer_programs.json"
SYSTEMS = ("pyframe", "torch.compile")


def gradients(result: Any, args: tuple[Any, ...]) -> list[Any]:
    """The gradients of the arguments after a backward pass from every differentiable tensor of the result."""
    leaves = torch.utils._pytree.tree_leaves(result)
    outputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn is not None]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    return [a.grad for a in args if isinstance(a, torch.Tensor) and a.is_leaf]


def run(fn: Any, made: Program) -> list[Any]:
    """What each call does: its result, gradients, exception, output and the program's state after it."""
    seen: list[Any] = []
    for args in made.calls:
        torch.manual_seed(7)
        printed = io.StringIO()
        result: Any = None
        error: Any = None
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = fn(*args)
                grads = gradients(result, args)
            except Exception as raised:  # noqa: BLE001  compared
                error, grads = (type(raised).__name__, str(raised)), []
        own = [str(w.message) for w in warned if "tracer_programs" in w.filename]
        seen.append(snapshot((result, grads, error, printed.getvalue(), own, made.state(), args)))
    return seen


def measure(name: str, system: str, backend: str) -> dict[str, Any]:
    """Runs a program eagerly and under `system`: whether they are equal, and what was captured."""
    import numpy as np

    ran = 0
    graphs: list[Any] = []

    def count(gm: Any, inputs: Any) -> Any:
        size = sum(node.op.startswith("call_") for node in gm.graph.nodes)
        graphs.append(size)
        inner = gm.forward
        if system == "pyframe" and backend != "eager":
            from pyframe.backends import find_backend

            inner = find_backend(backend)(gm, inputs)

        def call(*args: Any) -> Any:
            nonlocal ran
            ran += size
            return inner(*args)

        return call

    np.random.seed(0)
    made = PROGRAMS[name]()
    want = run(made.fn, made)
    np.random.seed(0)
    made = PROGRAMS[name]()
    if system == "pyframe":
        import pyframe
        from pyframe.metrics import counters

        got = run(pyframe.compile(made.fn, backend=count), made)
        breaks = sum(counters["graph_breaks"].values())
        reasons = [str(reason) for reason in counters["graph_breaks"]]
    else:
        from torch._dynamo.utils import counters as theirs

        got = run(torch.compile(made.fn, backend=count), made)
        breaks = sum(theirs["graph_break"].values())
        reasons = [str(reason).splitlines()[0] for reason in theirs["graph_break"]]
    difference = next((f"call {i}: {why}" for i, (a, b) in enumerate(zip(want, got)) if (why := equal(a, b))), None)
    if difference is not None:
        difference = difference.splitlines()[0][:200]
    return {"graphs": len(graphs), "breaks": breaks, "operators": ran, "difference": difference, "reasons": reasons}


def child(name: str, system: str, backend: str, pipe: Connection) -> None:
    """Sends the measurement through `pipe`."""
    try:
        pipe.send(measure(name, system, backend))
    except Exception as error:  # noqa: BLE001  reported as the program's result
        pipe.send({"difference": f"{type(error).__name__}: {error}", "graphs": 0, "breaks": 0, "operators": 0})


def in_process(name: str, system: str, backend: str, timeout: float) -> dict[str, Any]:
    """`measure` in a fork of this process."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=child, args=(name, system, backend, theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(timeout):
            return ours.recv()
        failed = f"no end after {timeout:.0f} s"
    except EOFError:
        process.join()
        failed = f"the process ended with exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
    return {"difference": failed, "graphs": 0, "breaks": 0, "operators": 0}


def worse(ours: dict[str, Any], theirs: dict[str, Any] | None) -> str:
    """Why a program is worse than eager or than torch.compile; "" if it is not."""
    if ours["difference"]:
        return f"differs: {ours['difference']}"
    if theirs is None or theirs["difference"]:
        return ""
    if ours["breaks"] > theirs["breaks"]:
        return f"{ours['breaks']} breaks, torch.compile {theirs['breaks']}: {', '.join(ours.get('reasons', ()))}"
    if ours["graphs"] > theirs["graphs"] > 0 and ours["operators"] <= theirs["operators"]:
        return f"{ours['graphs']} graphs, torch.compile {theirs['graphs']}"
    if theirs["operators"] > 0 and ours["operators"] == 0:
        return "nothing captured"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--peer", action="store_true", help="run torch.compile, too")
    parser.add_argument("--write", action="store_true", help="write the results")
    parser.add_argument("--timeout", type=float, default=120)
    options = parser.parse_args()
    names = options.names or list(PROGRAMS)
    import pyframe  # noqa: F401  children fork from this process

    last: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.peer:
        importlib.import_module("torch._dynamo")
    bad = wrong = 0
    for name in names:
        row = dict(last.get(name, {}))
        row["pyframe"] = in_process(name, "pyframe", options.backend, options.timeout)
        if options.peer:
            row["torch.compile"] = in_process(name, "torch.compile", "eager", options.timeout)
        why = worse(row["pyframe"], row.get("torch.compile"))
        bad, wrong = bad + bool(why), wrong + bool(row["pyframe"]["difference"])
        if why:
            print(f"{name}: {' '.join(why.split())[:300]}", flush=True)
        last[name] = row
    peers = [last[name]["torch.compile"] for name in names if "torch.compile" in last[name]]
    one = sum(row["graphs"] == 1 and row["breaks"] == 0 for name in names if (row := last[name]["pyframe"]))
    print(
        f"torch {torch.__version__}: of {len(names)} programs {len(names) - wrong} are as in eager, {one} in one graph "
        f"and capture; {bad} differ or break more than under torch.compile "
        f"(as in eager there: {sum(not p['difference'] for p in peers)} of {len(peers)})"
    )
    if options.write:
        RESULTS.write_text(json.dumps({name: last[name] for name in PROGRAMS if name in last}, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
