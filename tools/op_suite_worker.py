"""The worker process of the operator suite: takes units (an operator in one mode) from standard input, runs their cases
compiled and in eager, and writes the outcomes as JSON lines to a file descriptor (its first argument).

Several cases are compiled as one function. If that function fails, its cases are tried in halves, down to single ones,
so that a verdict always concerns one case; the verdict is "together" if cases are right alone and wrong together. The
names of the cases are written before each attempt, so that the parent knows which ones were running if the process
dies.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

os.environ.setdefault("PYFRAME_MEASURE", "0")  # the suite is about compiled graphs, not about ATen where that is faster
import torch  # noqa: E402
from op_suite_cases import (  # noqa: E402
    BACKWARD_MODES,
    SPECIAL_MODES,
    Case,
    cases_of,
    copy_call,
    function_of,
    operators,
    to_double,
    with_steps,
)
from op_suite_compare import Outcome, difference, with_elements, with_nearer_elements  # noqa: E402
from op_suite_engines import Ours, Peer  # noqa: E402
from op_suite_exceptions import LEFT_OUT, UNINITIALISED, UNINITIALISED_RESULTS  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from tools.fuzz_graphs.rounding import RoundedOperators  # noqa: E402

ROUNDED_RUNS = 4
HALF = frozenset((torch.bfloat16, torch.float16))
MAX_RAISING = 2  # cases for which eager raises that are tried, of each operator and mode


def batch_function(op: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function of `count` calls of `op`, without a loop: (calls) -> list of results."""
    names = ", ".join(f"(i{k}, a{k}, k{k})" for k in range(count))
    lines = [f"    {names}, = calls"]
    lines += [f"    r{k} = op(i{k}, *a{k}, **k{k})" for k in range(count)]
    text = "\n".join(["def batch(calls):", *lines, f"    return [{', '.join(f'r{k}' for k in range(count))}]"])
    scope: dict[str, Any] = {"op": op}
    exec(compile(text, "<op_suite>", "exec"), scope)
    return scope["batch"]


def differentiable(results: Any) -> list[torch.Tensor]:
    """The tensors among the leaves that require a gradient."""
    return [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]


class Calls:
    """How a run copies and differentiates a call `(input, args, kwargs)`. Databases whose inputs are not only tensors
    override these methods."""

    def copy(self, call: Any) -> Any:
        """The call with inputs of its own, as every run needs them."""
        return copy_call(call)

    def in_double(self, call: Any) -> Any:
        """The call in float64."""
        return to_double(call)

    def leaves(self, call: Any) -> list[torch.Tensor]:
        """The tensors whose gradients are computed."""
        return differentiable(call)

    def afterwards(self, call: Any) -> Any:
        """The properties of the inputs that are compared after the call."""
        return call


def gradients(
    cases: Sequence[Case], results: Sequence[Any], leaves: Sequence[list[torch.Tensor]],
    rounded_as: Sequence[Any] | None = None,
) -> list[list[Any]]:
    """Of each case's `leaves`, from fixed numbers as the gradients of its results: the same ones for a case alone and
    among others. They are rounded to the dtypes of the results, or of the results `rounded_as` of another run, of which
    this one is a reference in a wider dtype."""
    outputs = [differentiable(case.process(result)) for case, result in zip(cases, results, strict=True)]
    likes = outputs
    if rounded_as is not None:
        likes = [differentiable(case.process(result)) for case, result in zip(cases, rounded_as, strict=True)]
    flat = [x for group in leaves for x in group]
    given = [x for group, like in zip(outputs, likes, strict=True) for x in _weights(group, like)]
    if not given or not flat:
        return [[] for _ in leaves]
    found = iter(torch.autograd.grad([x for group in outputs for x in group], flat, given, allow_unused=True))
    return [[next(found) for _ in group] for group in leaves]


def _weights(outputs: Sequence[torch.Tensor], likes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors like `outputs` with numbers between 0.5 and 1.5 that the dtypes of `likes` hold exactly."""
    generator = torch.Generator().manual_seed(1)
    given = []
    for x, like in zip(outputs, likes, strict=True):
        numbers = torch.rand(x.shape, generator=generator, dtype=torch.float64) + 0.5
        if like.dtype.is_floating_point:
            numbers = numbers.to(like.dtype).double()
        if x.layout is not torch.strided:
            numbers = numbers.to_sparse(layout=x.layout)
        given.append(numbers.to(x.dtype).to(x.device))
    return given


class Unit:
    """An operator in one mode."""

    def __init__(self, op: Any, mode: str, engine: Any, device: str, tell: Callable[..., None]) -> None:
        self.name, self.mode, self.engine, self.device, self.tell = op.full_name, mode, engine, device, tell
        self.function = function_of(op, mode)
        self.backward = mode in BACKWARD_MODES
        self.calls = Calls()
        self.values_differ: set[str] = set()  # cases whose elements are not compared

    def run(
        self, fn: Callable[..., Any], cases: Sequence[Case], calls: Sequence[Any], seed: int = 0,
        rounded_as: Sequence[Any] | None = None,
    ) -> list[Outcome]:
        """`fn` on copies of the calls. See `gradients` for `rounded_as`."""
        copies = [self.calls.copy(call) for call in calls]
        torch.manual_seed(seed)
        results = fn(copies)
        # results that are inputs, and gradients, are those of this run
        found: Sequence[Any] = [None for _ in cases]
        if self.backward:
            found = gradients(cases, results, [self.calls.leaves(call) for call in copies], rounded_as)
        left = [self.calls.afterwards(call) for call in copies]
        return [Outcome(*each) for each in zip(results, left, found, strict=True)]

    def try_cases(self, cases: list[Case]) -> None:
        """The verdict of each case."""
        kept = self._those_eager_runs(cases)
        if kept:
            self._attempt(kept)

    def _those_eager_runs(self, cases: list[Case]) -> list[Case]:
        kept = []
        raised: set[str] = set()
        for case in cases:
            error = self._eager_error(case)
            if error is None:
                kept.append(case)
            elif len(raised) < MAX_RAISING and f"{type(error)} {error}" not in raised:
                raised.add(f"{type(error)} {error}")
                self._try_error(case, error)
            else:
                self.tell(case=case.name, verdict="not run", detail="eager raises")
        return kept

    def _eager_error(self, case: Case) -> Exception | None:
        eager = batch_function(self.function, 1)
        try:
            once = self.run(eager, [case], [case.call])
            if self.name in UNINITIALISED or self._draws(eager, case, once):
                self.values_differ.add(case.name)
        except Exception as error:
            return error
        return None

    def _draws(self, eager: Callable[..., Any], case: Case, once: list[Outcome]) -> bool:
        """Whether a case draws random numbers that cannot be compared: on a GPU, our kernels draw other numbers than
        eager's."""
        if self.device == "cpu":
            return False
        second = self.run(eager, [case], [case.call], seed=1)
        return difference(once[0], second[0], lambda: None) is not None

    def _try_error(self, case: Case, wanted: Exception) -> None:
        """Checks that the compiled function raises `wanted`, as eager does."""
        self.tell(start=[case.name])
        self.engine.forget()
        try:
            fast = self.engine.compile(batch_function(self.function, 1), self.mode == "dynamic")
            self.run(fast, [case], [case.call])
        except Exception as error:
            if type(error) is type(wanted):
                self.tell(case=case.name, verdict="right", detail=f"raises {type(error).__name__}")
            else:
                detail = f"{_error_text(error)} instead of {_error_text(wanted)}"
                self.tell(case=case.name, verdict="other error", detail=detail)
        else:
            self.tell(case=case.name, verdict="no error", detail=f"a result instead of {_error_text(wanted)}")

    def _attempt(self, cases: list[Case]) -> bool:
        """Whether all cases are right; reports the verdict of each."""
        found = self._problems(cases)
        if not any(found.values()):
            for case in cases:
                self.tell(case=case.name, verdict="right")
            return True
        if len(cases) == 1:
            verdict, detail = found[cases[0].name]
            self.tell(case=cases[0].name, verdict=verdict, detail=detail)
            return False
        suspects = [case for case in cases if found.get(case.name)]
        others = [case for case in cases if not found.get(case.name)]
        if len(suspects) == len(cases):
            middle = len(cases) // 2
            groups = [cases[:middle], cases[middle:]]
        else:
            groups = [[case] for case in suspects]
            for case in others:
                self.tell(case=case.name, verdict="right")
        if all([self._attempt(group) for group in groups]):
            name, (_, detail) = next((n, p) for n, p in found.items() if p)
            self.tell(case=name, verdict="together", detail=f"{detail}; with {[case.name for case in cases]}")
            return False
        return False

    def _problems(self, cases: list[Case]) -> dict[str, tuple[str, str] | None]:
        """What is not right, by names of cases; the same for all cases if the compiled function raises."""
        self.tell(start=[case.name for case in cases])
        eager = batch_function(self.function, len(cases))
        calls = [case.call for case in cases]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = self.run(eager, cases, calls)
        except Exception as error:
            return {case.name: ("not run", f"eager raises {_error_text(error)} for several at once") for case in cases}
        self.engine.forget()
        fast = self.engine.compile(batch_function(self.function, len(cases)), self.mode == "dynamic")
        found: dict[str, tuple[str, str] | None] = {}
        try:
            got = self.run(fast, cases, calls)
            self._compare(cases, calls, want, got, "", found)
            before = self.engine.compilations()
            got = self.run(fast, cases, calls)
            if self.engine.compilations() != before:
                return {case.name: ("not reused", "the second call compiled again") for case in cases} | found
            self._compare(cases, calls, want, got, "second call: ", found)
            others = [case.partner or case.call for case in cases]
            if any(case.partner for case in cases) and not any(found.values()):
                want = self.run(eager, cases, others)
                got = self.run(fast, cases, others)
                self._compare(cases, others, want, got, "other sizes: ", found)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            detail = f"{_error_text(error)} ({Path(where.filename).name}:{where.lineno})"
            return {case.name: ("error", detail) for case in cases}
        finally:
            self.tell(remarks=self.engine.remarks())
        return found

    def _compare(
        self, cases: Sequence[Case], calls: Sequence[Any], want: Sequence[Outcome], got: Sequence[Outcome], when: str,
        found: dict[str, tuple[str, str] | None],
    ) -> None:
        for case, call, expected, actual in zip(cases, calls, want, got, strict=True):
            reference = functools.partial(self._in_double, case, call, expected)
            unset = UNINITIALISED_RESULTS.get(self.name, frozenset())
            problem = difference(expected, actual, reference, case.name not in self.values_differ, unset)
            if problem is not None and self.mode in SPECIAL_MODES:
                problem = self._unlike_every_kernel(case, call, expected, actual, unset)
            elif problem is not None and self._as_rounded_elsewhere(case, call, expected, actual, unset):
                problem = None
            if problem is not None and not found.get(case.name):
                found[case.name] = "wrong", when + problem
        owners: dict[int, int] = {}
        for k, outcome in enumerate(got):
            for x in pytree.tree_leaves(outcome.results):
                if isinstance(x, torch.Tensor) and x.layout is torch.strided and x.numel():
                    if owners.setdefault(x.untyped_storage()._cdata, k) != k:
                        found[cases[k].name] = "wrong", when + "a result shares memory with another call's"

    def _unlike_every_kernel(
        self, case: Case, call: Any, want: Outcome, got: Outcome, unset: frozenset[int]
    ) -> str | None:
        """How `got` differs from eager, if it does so from all of ATen's kernels: those for vectors of elements, those
        for single elements, and those for float64. They differ from one another for NaN and infinities."""
        others = [with_steps(call), self.calls.in_double(call)]
        for other in others:
            try:
                found = self.run(batch_function(self.function, 1), [case], [other])[0]
            except (RuntimeError, ValueError, TypeError):
                continue
            want = with_nearer_elements(want, found, got)
        return difference(want, got, functools.partial(self._in_double, case, call, want), True, unset)

    def _as_rounded_elsewhere(
        self, case: Case, call: Any, want: Outcome, got: Outcome, unset: frozenset[int]
    ) -> bool:
        """Whether a call in half precision is as close to its value in float64 as correct calls are. Eager's own error
        may be small by chance; that of calls in float64, with the results of each operator off by as much as rounding
        to its dtype in eager, shows how large the error of other correct orders of rounding is."""
        dtypes: dict[tuple[str, int], torch.dtype] = {}
        eager = batch_function(self.function, 1)
        reference = functools.partial(self._in_double, case, call, want)
        try:
            with RoundedOperators(dtypes, 0, noted=True):
                self.run(eager, [case], [call])
            if HALF.isdisjoint(dtypes.values()):
                return False
            for seed in range(ROUNDED_RUNS):
                with RoundedOperators(dtypes, seed):
                    other = self.run(eager, [case], [self.calls.in_double(call)], rounded_as=[want.results])[0]
                if difference(with_elements(want, other), got, reference, True, unset) is None:
                    return True
        except (RuntimeError, ValueError, TypeError):  # no float64 for this operator
            return False
        return False

    def _in_double(self, case: Case, call: Any, eager: Outcome) -> Outcome | None:
        """The call in float64 with the gradients that the results of `eager` were given, or None if the operator does
        not support that."""
        double, given = self.calls.in_double(call), [eager.results]
        try:
            return self.run(batch_function(self.function, 1), [case], [double], rounded_as=given)[0]
        except (RuntimeError, ValueError, TypeError):
            return None


def _error_text(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]


def run_unit(request: dict[str, Any], engine: Any, op: Any, tell: Callable[..., None]) -> None:
    """The cases of the operator `op` in the mode of the request."""
    device, mode, name = request["device"], request["mode"], op.full_name
    unit = Unit(op, mode, engine, device, tell)
    if unit.function is None or f"{name} {mode}" in LEFT_OUT or name in LEFT_OUT:
        tell(plan=[])
        return
    wanted = [getattr(torch, name) for name in request["dtypes"]]
    run_cases(unit, lambda: cases_of(op, mode, device, wanted, request["samples"]), request, tell)


def run_cases(
    unit: Unit, cases_of_unit: Callable[[], Iterable[Case]], request: dict[str, Any], tell: Callable[..., None]
) -> None:
    """Runs cases in batches; `request["plan"]` lists the remaining ones and how they are grouped."""
    try:
        cases = {case.name: case for case in cases_of_unit()}
    except Exception as error:
        tell(plan=[])
        tell(case="samples", verdict="not run", detail=f"the database cannot make samples: {_error_text(error)}")
        return
    size = 1 if request["mode"] == "errors" else request["batch"]
    names = list(cases)
    plan = request.get("plan") or [names[k : k + size] for k in range(0, len(names), size)]
    tell(plan=plan)
    for group in plan:
        unit.try_cases([cases[name] for name in group if name in cases])
    unit.engine.forget()
    gc.collect()


def serve(run: Callable[[dict[str, Any], Any, Callable[..., None]], None]) -> None:
    """Answers requests until standard input ends: `run(request, engine, tell)` handles one."""
    out = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    engine = {"ours": Ours, "peer": Peer}[sys.argv[2]]()

    def tell(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    tell(ready=True)
    for line in sys.stdin:
        run(json.loads(line), engine, tell)
        tell(done=True)


def main() -> None:
    database = operators()
    serve(lambda request, engine, tell: run_unit(request, engine, database[request["op"]], tell))


if __name__ == "__main__":
    main()
