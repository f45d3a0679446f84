"""The main program of a repro script: runs the graph compiled and with ATen, and compares the results.

`verdict` returns how that ended as a `Verdict`, which the minifier compares; scripts print it.
"""

from __future__ import annotations

import enum
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .compile import compile_fx
from .verify.compare import copies, difference, run, run_converted
from .verify.repro import grad_mode


class Ending(enum.Enum):
    """How a run of a graph, compiled and with ATen, ended."""

    RIGHT = "right"
    WRONG = "wrong"
    ERROR = "error"  # the compiler raised an exception
    EAGER_RAISES = "eager raises"
    CRASH = "crash"  # a signal ended the process
    TIMEOUT = "it did not end in time"
    NOT_RUN = "the reduction does not apply"  # there is no such graph


@dataclass(frozen=True)
class Verdict:
    """How a run ended. `what`: the type of the exception or the name of the signal. `detail`: the exception's
    message, or how the results differ."""

    ending: Ending
    what: str = ""
    detail: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether the compiler is at fault."""
        return self.ending in (Ending.WRONG, Ending.ERROR, Ending.CRASH, Ending.TIMEOUT)

    def same_failure(self, other: Verdict) -> bool:
        """Whether both failures are of one kind; how results differ and what exceptions say does not matter."""
        return (self.ending, self.what) == (other.ending, other.what)

    def __str__(self) -> str:
        separator = " " if self.ending is Ending.EAGER_RAISES else ": "
        what = f"{self.ending.value}{separator}{self.what}" if self.what else self.ending.value
        return f"{what}: {self.detail}" if self.detail else what


def verdict(gm: fx.GraphModule, inputs: Sequence[Any], compile_graph: Callable[..., Any] | None = None) -> Verdict:
    """Compile and run a graph in its grad mode, and compare it with ATen: RIGHT, WRONG, ERROR or EAGER_RAISES."""
    with torch.set_grad_enabled(grad_mode(gm)):
        return _verdict(gm, inputs, compile_graph)


def _verdict(gm: fx.GraphModule, inputs: Sequence[Any], compile_graph: Callable[..., Any] | None) -> Verdict:
    theirs = run(gm, copies(inputs))
    if theirs.error is not None:
        return Verdict(Ending.EAGER_RAISES, type(theirs.error).__name__, str(theirs.error))
    try:
        compiled = (compile_graph or compile_fx)(gm, list(inputs), options={"strict": True, "cache": False})
    except Exception as error:  # noqa: BLE001  any exception of the compiler is the finding
        cause = error.__cause__ or error
        return Verdict(Ending.ERROR, type(cause).__name__, str(cause))
    why = difference(run(compiled, copies(inputs)), theirs, lambda convert: run_converted(gm, inputs, convert))
    return Verdict(Ending.RIGHT) if why is None else Verdict(Ending.WRONG, detail=why)


def main(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Print the verdict. Exit status 0: right; 1: any other verdict; 2: the comparison itself failed."""
    try:
        found = verdict(gm, inputs)
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        sys.exit(2)
    print(found)
    sys.exit(0 if found.ending is Ending.RIGHT else 1)
