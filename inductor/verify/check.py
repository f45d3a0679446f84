"""Wraps a compiled graph so that its first call, or some of its calls, are compared with ATen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..compile_report import CompileReport
from ..eager.higher_order import runnable
from ..eager.saved_tensors import unobserved_saving
from ..fallback import check_expected
from ..fx_utils.places import captured_function, name_of, user_place
from ..log.stages import count, show
from ..log.warnings import warn
from ..process.compile_lock import compile_lock
from ..verify_policy import Policy, budget, sampler
from .compare import NotComparable, copies, device_of, difference, run, run_converted, same_random_numbers
from .locate import Fault, locate
from .repro import write_repro


class Checked:
    """Compares the calls that `policy` selects of `compiled` with `gm`, from which it was compiled.

    The program calls `call`. If a result differs, `call` runs `gm` with ATen from then on, one warning describes the
    difference, and a repro script is written.
    """

    def __init__(
        self, gm: fx.GraphModule, compiled: Callable[..., Any], policy: Policy, report: CompileReport
    ) -> None:
        self.gm, self.compiled, self.policy, self.report = gm, compiled, policy, report
        self.expected = 0.0  # expected duration of a check, in seconds
        first = 1 if policy.rate is None else budget.next_call(policy.rate)
        self.call = sampler(compiled, self.check, first)

    def check(self, *args: Any) -> Any:
        """Run a call and compare it, if the time budget allows."""
        rate = self.policy.rate
        if rate is not None:
            self.call.countdown = budget.next_call(rate)
            if not budget.allows(rate, self.expected):
                return self.compiled(*args)
        return self.compare(*args)

    def compare(self, *args: Any) -> Any:
        """Run a call and compare it; returns the compiled graph's result, or ATen's if the two differ."""
        start = time.perf_counter()
        try:
            why = self._difference(args)
        except NotComparable as error:
            show("verify", f"{self._whose()} is not compared: {error}")
            why = None
        self.expected = time.perf_counter() - start
        budget.spent += self.expected
        if why is None:
            return self.compiled(*args)
        self._give_up(args, why)
        return self.call.target(*args)

    def _difference(self, args: Sequence[Any]) -> str | None:
        count("verified")
        eager = runnable(self.gm)
        with _state_kept(self.gm), unobserved_saving():
            theirs = run(eager, copies(args))
            if theirs.drew and device_of(args).type == "cuda":
                raise NotComparable("it draws random numbers, on a GPU others than ATen's")
            ours = run(self.compiled, copies(args))
            return difference(ours, theirs, lambda convert: run_converted(eager, args, convert))

    def _give_up(self, args: Sequence[Any], why: str) -> None:
        """Run the graph with ATen from now on, and warn with the location of the fault."""
        self.call.target, self.call.countdown = runnable(self.gm).forward, 0
        self.report.fallback = f"the compiled graph returned another result than ATen: {why}"
        count("verify_failures")
        with _state_kept(self.gm), same_random_numbers(device_of(args)):
            fault = self._fault(args)
        script = write_repro(self.gm, copies(args), why)
        warn(
            f"inductor: {self._whose()} returned another result than ATen: {why}. {_describe(fault)} ATen's result is "
            f"returned, and the graph runs with ATen from now on. To reproduce: {script} "
            f"(`python -m inductor.minify_repro` makes it smaller)."
        )

    def _fault(self, args: Sequence[Any]) -> Fault | None:
        """Where the difference begins; None if that cannot be found."""
        try:
            with compile_lock:
                return locate(self.gm, copies(args))
        except Exception as error:  # noqa: BLE001  the result is known to be wrong; report that even without the place
            check_expected(error)
            show("verify", f"the operator was not found: {type(error).__name__}: {error}")
            return None

    def _whose(self) -> str:
        place = captured_function(self.gm)
        return f"the compiled graph of {place.function} ({place.file}:{place.line})" if place else "a compiled graph"


def _describe(fault: Fault | None) -> str:
    if fault is None:
        return "No single operator differs when its result is compared."
    place = user_place(fault.node)
    where = f" at {place}" if place else ""
    kernel = f", computed by {fault.kernel}" if fault.kernel else ""
    return f"The first operator whose output differs is {name_of(fault.node)}{where}{kernel}."


class _state_kept:  # noqa: N801  used like a function
    """Context manager that restores the module's parameters and buffers if they were written."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.tensors = [*gm.parameters(), *gm.buffers()]

    def __enter__(self) -> None:
        self.before = [(x, x._version, x.detach().clone()) for x in self.tensors]

    def __exit__(self, *_: object) -> None:
        with torch.no_grad():
            for x, version, value in self.before:
                if x._version != version:
                    x.copy_(value)
