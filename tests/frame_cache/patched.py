"""Processes that have replaced functions of Python or torch before they import pyframe, with captures that one without
replacements has kept.

    python -m tests.frame_cache.patched OUTPUT

Each program runs in two child processes with one cache: first as it is, then with the replacement, where a program that
is not loaded runs eagerly. Writes a JSON object: for each program its results in eager mode and compiled, and
whether the capture was loaded, in both processes. Nothing here imports pyframe before the fork.
"""

from __future__ import annotations

import builtins
import functools
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .forked import result_of_child

linear = nn.Linear(3, 3)


class Own(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mm(x)


own = Own()
Program = Callable[[torch.Tensor], Any]
# (program, the object with the attribute, its name, what takes its place)
CASES: dict[str, tuple[Program, Any, str, Any]] = {
    "max": (lambda x: (x.mm(x), max(1, 2)), builtins, "max", min),
    "sqrt": (lambda x: (x.mm(x), math.sqrt(4.0)), math, "sqrt", abs),
    "reduce": (lambda x: (x.mm(x), functools.reduce(max, [1, 2])), functools, "reduce", lambda f, items: 7),
    "is_grad_enabled": (lambda x: (x.mm(x), torch.is_grad_enabled()), torch, "is_grad_enabled", lambda: 7),
    "is_tensor": (lambda x: (x.mm(x), torch.is_tensor(1)), torch, "is_tensor", lambda value: True),
    "Tensor.dim": (lambda x: (x.mm(x), x.dim()), torch.Tensor, "dim", lambda self: 7),
    "Tensor.shape": (lambda x: (x.mm(x), x.shape[0]), torch.Tensor, "shape", (7,)),
    "Tensor.mm": (lambda x: x.mm(x), torch.Tensor, "mm", torch.add),
    "linear": (lambda x: nn.functional.linear(x, x), nn.functional, "linear", torch.add),
    "Linear.forward": (lambda x: linear(x), nn.Linear, "forward", lambda self, x: x.mm(x)),
    "Module._call_impl": (lambda x: own(x), nn.Module, "_call_impl", lambda self, x: x + 7),
}  # fmt: skip


def run(names: list[str], patch: bool) -> dict[str, Any]:
    for owner, attribute, replacement in (CASES[name][1:] for name in names if patch):
        setattr(owner, attribute, replacement)
    import pyframe
    from pyframe.lazy_compiler import LazyCompiler

    from .attacked import Eager

    if patch:
        LazyCompiler.compiler = lambda self: Eager()  # type: ignore[assignment, method-assign, return-value]
    outcomes = {}
    for name in names:
        program, x = CASES[name][0], torch.eye(3)
        pyframe.counters.clear()
        found = _text(pyframe.compile(program), x)
        counters = pyframe.counters
        outcomes[name] = {"compiled": found, "eager": _text(program, x), "loaded": counters["frames_loaded"],
                          "kept": counters["frames_kept"]}  # fmt: skip
    return outcomes


def _text(program: Program, x: torch.Tensor) -> list[str]:
    try:
        found = program(x)
    except Exception as error:  # noqa: BLE001  a program may fail with the replacement, which is its result
        return [repr(error)]
    parts = found if type(found) is tuple else (found,)
    return [str(part.tolist() if isinstance(part, torch.Tensor) else part) for part in parts]


def main(output: str) -> None:
    torch.set_num_threads(1)
    before = result_of_child(lambda: run(list(CASES), False))
    found = {name: {"before": before[name], "after": result_of_child(lambda name=name: run([name], True))[name]} for name in CASES}
    with open(output, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    with torch.no_grad():
        main(sys.argv[1])
