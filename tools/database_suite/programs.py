"""Runs a program compiled, in eager, and in eager with float64, and compares the results after each call.

A program takes the function that compiles as an argument. In the eager run that function returns its argument, so the
same source is both the program and its reference.

If a program in float32 itself computes in half precision, eager's error in a single number says little: the error of
another order of rounding may be many times larger. Runs in float64 with artificial rounding errors at the operators
(`tools/fuzz_graphs/rounding.py`) then show how large errors of correct runs are.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from op_suite_compare import Outcome, difference
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tools.fuzz_graphs.rounding import RoundedOperators

ROUNDED_RUNS = 4
HALF = (torch.bfloat16, torch.float16)
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Step = Callable[[int], Any]


@dataclass(frozen=True)
class Program:
    """`make(compile, dtype)` sets up the program with numbers in `dtype`, and returns a function that takes the number
    of a call, makes that call, and returns the values to compare (containers of tensors and other objects). The first
    `compiling_calls` of the `calls` may compile; later ones must not."""

    name: str
    make: Callable[[Compile, torch.dtype], Step]
    dtype: torch.dtype = torch.float32
    calls: int = 2
    compiling_calls: int = 1
    dynamic: bool = False


def _as_it_is(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def _snapshot(results: Any) -> Any:
    """A copy of the results that later calls do not change."""
    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.detach().clone().requires_grad_(x.requires_grad) if type(x) is torch.Tensor else x

    return pytree.tree_map_only(torch.Tensor, copied, results)


class _Run:
    """A program, set up with one way to compile."""

    def __init__(self, program: Program, compile: Compile, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.step = program.make(compile, dtype)

    def call(self, number: int) -> Outcome:
        """What the call leaves behind; the same random numbers for each way to compile."""
        torch.manual_seed(number + 1)
        return Outcome(_snapshot(self.step(number)), ())


def verdict(program: Program, engine: Any) -> tuple[str, str]:
    """The verdict for the report, and a description of what is wrong."""
    eager = functools.partial(_Run, program, _as_it_is)
    try:
        wanted = eager(program.dtype)
        want: list[Outcome] = [wanted.call(number) for number in range(program.calls)]
    except Exception as error:
        return _where_eager_raises(program, engine, error)
    exact = functools.cache(functools.partial(_in_double, program))
    rounded = functools.cache(functools.partial(_rounded_runs, program))
    engine.forget()
    try:
        fast = _Run(program, lambda fn: engine.compile(fn, program.dynamic), program.dtype)
        for number, expected in enumerate(want):
            before = engine.compilations()
            got = fast.call(number)
            if number >= program.compiling_calls and engine.compilations() != before:
                return "not reused", f"call {number} compiled again"
            problem = difference(expected, got, lambda number=number: exact()[number])  # type: ignore[misc]
            if problem is not None and not _as_rounded_elsewhere(number, expected, got, exact, rounded):
                return "wrong", f"call {number}: {problem}"
    except Exception as error:
        return "error", _error_text(error)
    return "right", ""


class _WithoutHalfPrecision(TorchFunctionMode):
    """What the program itself converts to half precision stays in float64 (Muon computes in bfloat16)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.bfloat16, torch.Tensor.half) and args[0].is_floating_point():
            return args[0].to(torch.float64, copy=True)
        return func(*args, **(kwargs or {}))


def _in_double(program: Program) -> list[Outcome | None]:
    try:
        with _WithoutHalfPrecision():
            run = _Run(program, _as_it_is, torch.float64)
            return [run.call(number) for number in range(program.calls)]
    except (RuntimeError, ValueError, TypeError):
        return [None] * program.calls


def _rounded_runs(program: Program) -> list[list[Outcome]]:
    """Runs in float64 in which the results of operators are off by as much as rounding to their dtypes in the program,
    if the program itself computes in half precision; otherwise none."""
    dtypes: dict[tuple[str, int], torch.dtype] = {}
    with RoundedOperators(dtypes, 0, noted=True):
        run = _Run(program, _as_it_is, program.dtype)
        for number in range(program.calls):
            run.call(number)
    if program.dtype in HALF or not any(dtype in HALF for dtype in dtypes.values()):
        return []
    runs = []
    for seed in range(ROUNDED_RUNS):
        with _WithoutHalfPrecision(), RoundedOperators(dtypes, seed):
            run = _Run(program, _as_it_is, torch.float64)
            runs.append([run.call(number) for number in range(program.calls)])
    return runs


def _as_rounded_elsewhere(
    number: int, want: Outcome, got: Outcome, exact: Callable[[], list[Outcome | None]],
    rounded: Callable[[], list[list[Outcome]]],
) -> bool:
    """Whether the errors of `got`, the outcome of call `number`, are at most as large as the comparison allows if one
    of the `rounded` runs takes the place of eager's, `want`."""
    def in_dtype(x: Any, like: Any) -> Any:
        return x.to(like.dtype) if isinstance(x, torch.Tensor) else like

    return any(
        difference(Outcome(pytree.tree_map(in_dtype, run[number].results, want.results), ()), got,
                   lambda: exact()[number]) is None
        for run in rounded()
    )  # fmt: skip


def _where_eager_raises(program: Program, engine: Any, wanted: Exception) -> tuple[str, str]:
    """If eager raises, the compiled program must raise an exception of the same type."""
    engine.forget()
    try:
        run = _Run(program, lambda fn: engine.compile(fn, program.dynamic), program.dtype)
        for number in range(program.calls):
            run.call(number)
    except Exception as error:
        if type(error) is type(wanted):
            return "right", f"raises {type(error).__name__}"
        return "other error", f"{_error_text(error)} instead of {_error_text(wanted)}"
    return "no error", f"results instead of {_error_text(wanted)}"


def _error_text(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text} ({Path(where.filename).name}:{where.lineno})"[:400]


def run_programs(
    programs: Iterable[Program], request: dict[str, Any], engine: Any, tell: Callable[..., None]
) -> None:
    """Reports the verdict of each program; `request["plan"]` lists the remaining ones."""
    named = {program.name: program for program in programs}
    plan = request.get("plan") or [[name] for name in named]
    tell(plan=plan)
    for (name,) in plan:
        tell(start=[name])
        result, detail = verdict(named[name], engine)
        tell(remarks=engine.remarks())
        tell(case=name, verdict=result, detail=detail)
    engine.forget()


class Collection:
    """Programs written by hand, an entry each: a Database. `add` is the decorator of a function that makes one."""

    modes: tuple[str, ...] = ("call",)

    def __init__(self) -> None:
        self.programs: dict[str, Program] = {}

    def add(self, **facts: Any) -> Callable[[Callable[[Compile, torch.dtype], Step]], None]:
        """Adds `make(compile, dtype)` as a program by its name; `facts`: other fields of `Program`."""
        def added(make: Callable[[Compile, torch.dtype], Step]) -> None:
            name = make.__name__
            self.programs[name] = Program(name, make, **facts)

        return added

    def names(self) -> list[str]:
        """Of the programs, in the order in which they were written."""
        return list(self.programs)

    def run(self, name: str, request: dict[str, Any], engine: Any, tell: Callable[..., None]) -> None:
        """Runs one of them."""
        run_programs([self.programs[name]], request, engine, tell)
