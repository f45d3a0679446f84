"""The main program of a repro script: runs the graph compiled and with ATen, and compares the results."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from .compile import compile_fx
from .verify.compare import copies, difference, run, run_converted
from .verify.repro import grad_mode


def verdict(gm: fx.GraphModule, inputs: Sequence[Any], compile_graph: Callable[..., Any] | None = None) -> str:
    """Compile and run a graph in its grad mode: "right", "wrong: ...", "error: ..." or "eager raises ..."."""
    with torch.set_grad_enabled(grad_mode(gm)):
        return _verdict(gm, inputs, compile_graph)


def _verdict(gm: fx.GraphModule, inputs: Sequence[Any], compile_graph: Callable[..., Any] | None) -> str:
    theirs = run(gm, copies(inputs))
    if theirs.error is not None:
        return f"eager raises {type(theirs.error).__name__}: {theirs.error}"
    try:
        compiled = (compile_graph or compile_fx)(gm, list(inputs), options={"strict": True, "cache": False})
    except Exception as error:  # noqa: BLE001  any exception of the compiler is the finding
        cause = error.__cause__ or error
        return f"error: {type(cause).__name__}: {cause}"
    why = difference(run(compiled, copies(inputs)), theirs, lambda convert: run_converted(gm, inputs, convert))
    return "right" if why is None else f"wrong: {why}"


def main(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Print the verdict. Exit status 0: right; 1: any other verdict; 2: the comparison itself failed."""
    try:
        found = verdict(gm, inputs)
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        sys.exit(2)
    print(found)
    sys.exit(0 if found == "right" else 1)
