"""The worker process that checks random programs: reads and writes one JSON object per line.

A program is given as data or as a seed. If a program crashes the process, the parent starts another one.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any


def main(device: str) -> None:
    """`device`: cpu, cuda, fake-cuda (the Triton code generator, its kernels interpreted on the CPU), peer
    (torch.compile) or eager (nothing is compiled)."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    compiler, notes = compiler_of(device)
    from .check import check
    from .generate import compact, generate
    from .grammar import ALL
    from .program import Program

    place = "cuda" if device == "cuda" else "cpu"
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        job = json.loads(line)
        program = (
            Program.from_json(job["program"])
            if "program" in job
            else compact(generate(job["seed"], ALL, job.get("mode")))
        )
        if device == "fake-cuda" and program.mode == "threads":  # the interpreter runs in one thread
            program = replace(program, mode="forward")
        answers.write(json.dumps({"start": program.to_json()}) + "\n")  # so that the parent has it if this process dies
        answers.flush()
        notes.clear()
        verdict = check(program, compiler, place)
        notes["programs with kernels"] = int(kernels() > 0)
        answer = {
            "kind": verdict.kind,
            "detail": verdict.detail[:4000],
            "sensitive": verdict.sensitive,
            "notes": {**verdict.notes, **notes},
            "program": program.to_json(),
            "seed": program.seed,
        }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def kernels() -> int:
    """How many kernels were made since the present program's compiler was asked for, which resets the counters."""
    from pyframe import metrics

    return int(metrics.counters["kernels"])


def compiler_of(device: str) -> tuple[Callable[..., Any], Counter[str]]:
    """The compiler to test, and the counters of graphs and fallbacks of the current program."""
    notes: Counter[str] = Counter()
    if device == "eager":
        return lambda fn, dynamic: fn, notes
    if device == "peer":
        import torch

        def peer(fn: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
            torch._dynamo.reset()
            return torch.compile(fn, dynamic=dynamic or None)

        return peer, notes
    if device == "fake-cuda":
        from . import fake_cuda

        fake_cuda.install()
    import inductor.compile as pipeline
    import pyframe

    falls_back = pipeline.fall_back

    def fall_back(gm: Any, error: Exception, *settings: Any) -> Any:
        notes[f"fallback: {' '.join(str(error).split())[:120]}"] += 1
        return falls_back(gm, error, *settings)

    pipeline.fall_back = fall_back

    def compiler(fn: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
        pyframe.reset()
        return pyframe.compile(fn, dynamic=True) if dynamic else pyframe.compile(fn)

    return compiler, notes


if __name__ == "__main__":
    main(sys.argv[1])
