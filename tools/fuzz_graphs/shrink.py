"""Shrinks a failing program to the smallest one that fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .generate import compact, drop_unused
from .program import NAME, Input, Program, Statement

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, seconds: float = 60.0, tries: int = 300) -> Program:
    """Takes away results, statements, inputs, sizes and dtypes for as long as the program still fails."""
    stop = time.monotonic() + seconds
    seen: set[str] = set()
    changed = True
    while changed:
        changed = False
        for candidate in candidates(program):
            key = repr(candidate)
            if key in seen:
                continue
            seen.add(key)
            if time.monotonic() > stop or len(seen) > tries:
                return program
            if fails(candidate):
                program, changed = candidate, True
                break
    return program


def tidied(program: Program) -> Program:
    return compact(drop_unused(program))


def candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, the greatest steps first. Some are not valid: these do not fail, as eager fails too."""
    if len(program.results) > 1:
        for r in program.results:
            yield tidied(replace(program, results=(r,)))
        for k in range(len(program.results)):
            yield tidied(replace(program, results=program.results[:k] + program.results[k + 1 :]))
    statements = program.statements
    for k in reversed(range(len(statements))):  # the program up to a statement
        if statements[k].target and program.results != (statements[k].target,):
            yield tidied(replace(program, statements=statements[: k + 1], results=(statements[k].target,)))
    for k in range(len(statements)):
        yield from without(program, k)
    if program.mode not in ("forward", "backward"):
        yield replace(program, mode="backward" if "backward" in program.mode else "forward")
    if program.mode == "backward":
        yield replace(program, mode="forward", inputs=tuple(replace(i, grad=False) for i in program.inputs))
    for k, spec in enumerate(program.inputs):
        for smaller in simpler_inputs(spec):
            yield replace(program, inputs=program.inputs[:k] + (smaller,) + program.inputs[k + 1 :])
    sizes = sorted({n for i in program.inputs for n in i.shape if n > 1}, reverse=True)
    for n in sizes:  # everywhere, in the text too
        for m in dict.fromkeys((1, 2, n // 2, n - 1)):
            if 0 < m < n:
                inputs = tuple(replace(i, shape=tuple(m if s == n else s for s in i.shape)) for i in program.inputs)
                texts = tuple(replace(s, text=re.sub(rf"(?<![\w.]){n}(?![\w.])", str(m), s.text)) for s in statements)
                yield replace(program, inputs=inputs)
                yield replace(program, inputs=inputs, statements=texts)


def without(program: Program, k: int) -> Iterator[Program]:
    """The program without statement number k: what it made is an argument of it, or a value like it."""
    removed = program.statements[k]
    rest = program.statements[:k] + program.statements[k + 1 :]
    if not removed.target:
        yield tidied(replace(program, statements=rest))
        return
    known = {f"x{i}" for i in range(len(program.inputs))} | {s.target for s in program.statements[:k]}
    for other in dict.fromkeys(n for n in removed.uses() if n in known):

        def renamed(text: str, other: str = other) -> str:
            return NAME.sub(lambda m: other if m[0] == removed.target else m[0], text)

        changed = tuple(replace(s, text=renamed(s.text)) for s in rest)
        results = tuple(dict.fromkeys(renamed(r) for r in program.results))
        yield tidied(replace(program, statements=changed, results=results))


def simpler_inputs(spec: Input) -> Iterator[Input]:
    if spec.grad:
        yield replace(spec, grad=False)
    if spec.base is not None:
        return
    if spec.dtype not in ("float32", "int64", "bool"):
        yield replace(spec, dtype="float32" if "float" in spec.dtype else "int64")
    if spec.values == "extreme":
        yield replace(spec, values="normal")
    if spec.layout != "b":
        yield replace(spec, layout="b")
    for d, n in enumerate(spec.shape):
        for m in dict.fromkeys((1, n // 2, n - 1)):
            if 0 < m < n:
                yield replace(spec, shape=spec.shape[:d] + (m,) + spec.shape[d + 1 :])


__all__ = ["Statement", "shrink"]
