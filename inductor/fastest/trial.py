"""Measures a compiled graph against ATen in the calls of the program, and keeps the faster one.

The first calls run the compiled graph and are not measured. Then calls alternate: one runs the captured graph with
ATen's operators, the next one the compiled graph. No call runs both, so effects and random numbers are those of one
run. When the medians tell, the slower one is dropped, and what is left of this module in a call is one jump in C.
On a GPU a compiled graph that is clearly faster is found to be so in its first calls; any other is measured again
after the calls in which `cudagraphs.automatic` decides whether it is recorded.

What it costs: a compiled graph that is clearly faster runs with ATen in `1 + CLEAR` calls, none in more than `1 + MOST`
calls, and none of these takes longer than without a compiler. ATen is kept only if it is faster by MARGIN in the
medians of at least ENOUGH calls of each, and in so many pairs of neighbouring calls that chance would not explain it.
"""

from __future__ import annotations

import functools
import math
import os
import statistics
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..compile_report import CompileReport
from ..cudagraphs.automatic import draws
from ..cudagraphs.device import device_of
from ..eager.operator_errors import run_with_aten
from ..eager.saved_tensors import saving_is_observed
from ..extension import _C
from ..log.stages import count, show
from ..runtime.plan_spec import PlanSpec
from ..verify_policy import PythonSampler
from .choice import Choice, Choices
from .readings import Backward, Sample, started

VARIABLE = "PYFRAME_MEASURE"
SKIPPED = 2  # calls before the first that is measured: they load kernels and libraries
RECORDED_BY = 20  # calls on a GPU: in these, `cudagraphs.automatic` decides whether the plan is recorded
CLEAR, CLEARLY = 2, 0.8  # after this many pairs the compiled graph is kept if it took at most that share of ATen's time
ENOUGH, MOST = 8, 32  # pairs of which both may win, and those after which the trial ends
MARGIN = 0.98
PENDING = 4  # pairs that the GPU may owe the times of; then calls run the compiled graph until it is done
PAUSE = 8  # calls
MEMORY = 0.5  # the share of the free memory that the results of all operators may take

Kept = Callable[..., Any]


def is_wanted(measure: bool | None) -> bool:
    """Whether graphs compiled with this value of the option `measure` are measured: None leaves it to the environment
    variable PYFRAME_MEASURE. Not where results have to be the same in each run, nor in a distributed job, where ranks
    could choose differently."""
    if measure is None:
        measure = os.environ.get(VARIABLE, "1") != "0"
    return measure and not _is_distributed() and not torch.are_deterministic_algorithms_enabled()


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@dataclass(frozen=True)
class Original:
    """The graph that a compiled one is measured against. `with_aten` makes a callable that runs it with ATen;
    `result_bytes`: the bytes of the results of all operators."""

    with_aten: Callable[[], Kept]
    result_bytes: Callable[[], int]

    @staticmethod
    def of(gm: fx.GraphModule) -> Original:
        return Original(functools.partial(run_with_aten, gm), functools.partial(result_bytes, gm))


class Contest:
    """Chooses, for each combination of sizes of one compiled graph, what calls run. `key`: the graph's key in the disk
    cache or None; `attributes`: for a graph that records gradients the tensors of its module, None for others."""

    def __init__(
        self, original: Original, key: str | None, report: CompileReport,
        attributes: Sequence[torch.Tensor] | None = None,
    ) -> None:
        self.original, self.report, self.attributes = original, report, attributes
        self.choices = Choices(key)

    def kept_aten(self, sizes: Mapping[str, int]) -> Kept | None:
        """What runs the graph with ATen, if that was found to be faster earlier; then nothing has to be built."""
        choice = self.choices.find(sizes)
        if choice is None or not choice.keeps_aten:
            return None
        self.tell(choice)
        return self.original.with_aten()

    def between(self, compiled: Kept, spec: PlanSpec, sizes: Mapping[str, int]) -> Kept:
        """`compiled`, which runs this plan (its forward's, with a backward), or a callable that decides in its first
        calls what it runs. A plan that draws random numbers on a GPU is not measured: ATen would draw others, and the
        numbers of a program have to depend on its seed alone."""
        choice = self.choices.find(sizes)
        if choice is not None:
            self.tell(choice)
            return self.original.with_aten() if choice.keeps_aten else compiled
        if spec.device.startswith("cuda:") and (not torch.cuda.is_initialized() or draws(spec)):
            return compiled
        trial = Trial(self, compiled, spec.device, sizes)
        # a graph with gradients may be called within a checkpoint, which the trial must not miss
        countdown = SKIPPED + 1 if self.attributes is None else 1
        sampler = (PythonSampler if _C is None else _C.Sampler)(compiled, trial, countdown)
        trial.sampler = weakref.ref(sampler)
        return sampler

    def decide(self, sizes: Mapping[str, int], choice: Choice) -> None:
        """Remember a choice that was measured now."""
        self.choices.keep(sizes, choice)
        count("graphs_measured")
        self.tell(choice)

    def tell(self, choice: Choice) -> None:
        """Put a choice into the report, the counters and the logs."""
        self.report.measured.append(choice)
        if choice.keeps_aten:
            count("graphs_with_aten")
        show("measured", choice)


class Trial:
    """The calls that are measured, and the decision. `sampler` is what the program calls."""

    sampler: weakref.ref[Any]

    def __init__(self, contest: Contest, compiled: Kept, device: str, sizes: Mapping[str, int]) -> None:
        self.contest, self.compiled, self.sizes = contest, compiled, sizes
        self.aten: Kept | None = None
        self.device = device_of(device)
        self.pairs: list[list[Sample]] = []  # each ATen's and the compiled graph's sample
        self.watched: list[Backward] = []
        self.calls = 0 if contest.attributes is not None else SKIPPED  # that were not measured
        self.warm = False  # whether ATen has run once
        # Until the plan may be recorded, which one with gradients never is; None: there is no such pause.
        self.paused: bool | None = None if self.device is None or contest.attributes is not None else False
        self.turn = threading.Lock()  # held during a call that is measured; others meanwhile are not measured

    def __call__(self, *args: Any) -> Any:
        sampler = self.sampler()
        assert sampler is not None  # it is running this
        sampler.countdown = 1
        if not self.turn.acquire(blocking=False):
            return self.compiled(*args)
        try:
            if (choice := self._choice()) is not None:
                return self._end(sampler, choice)(*args)
            if _is_distributed() or self._may_run_again():
                return self._stop(sampler, self.compiled)(*args)
            self.calls += 1
            if self.calls <= SKIPPED:
                return self.compiled(*args)
            if _observed(self.device) or self._recorded_first(sampler) or self._waits(sampler):
                return self.compiled(*args)
            return self._measured(sampler, args)
        finally:
            self.turn.release()

    def _measured(self, sampler: Any, args: tuple[Any, ...]) -> Any:
        if self.aten is None:
            if not _fits(self.contest.original, self.device):
                return self._stop(sampler, self.compiled)(*args)
            self.aten = self.contest.original.with_aten()
        for_aten = not self.pairs or len(self.pairs[-1]) == 2
        sample, result = self._timed(self.aten if for_aten else self.compiled, args)
        if not self.warm:
            self.warm = True
        elif for_aten:
            self.pairs.append([sample])
        else:
            self.pairs[-1].append(sample)
        return result

    def _timed(self, run: Kept, args: tuple[Any, ...]) -> tuple[Sample, Any]:
        """Run a call, and its sample."""
        attributes = self.contest.attributes
        for each in self.watched:
            if each.reading is not None:
                each.end()
        self.watched = [each for each in self.watched if each.reading is None]
        backward = None if attributes is None else Backward(self.device, (*args, *attributes))
        stop = started(self.device)
        result = run(*args)
        sample = Sample(stop(), backward)
        if backward is not None:
            backward.watch(pytree.tree_leaves(result))
            self.watched.append(backward)
        return sample, result

    def _recorded_first(self, sampler: Any) -> bool:
        """Whether this call is not measured because the plan may still be recorded. The first pairs are looked at once
        more after that, when the GPU has come to them; if they do not decide, they are forgotten."""
        if self.paused is None or len(self.pairs) < CLEAR or len(self.pairs[-1]) < 2:
            return False
        if self.paused:
            self.paused, self.pairs = None, []
            return False
        self.paused, sampler.countdown = True, RECORDED_BY
        return True

    def _may_run_again(self) -> bool:
        """Whether something packs what this call saves for its backward. It may be a checkpoint: it repeats the call
        later, which must save the same tensors then."""
        return self.contest.attributes is not None and saving_is_observed()

    def _waits(self, sampler: Any) -> bool:
        """Whether this call is not measured because the GPU has not come to many that were."""
        owed = sum(sample.seconds() is None for pair in self.pairs for sample in pair)
        if owed <= 2 * PENDING:
            return False
        if self.contest.attributes is None:  # others may run within a checkpoint, which must not be missed
            sampler.countdown = PAUSE
        return True

    def _choice(self) -> Choice | None:
        """The choice that follows from the samples; None if there are too few."""
        other = self.contest.choices.find(self.sizes)
        if other is not None:  # other sizes of the class were measured meanwhile
            return other
        pairs = [pair for pair in self.pairs if len(pair) == 2]
        complete = [pair for pair in pairs if all(sample.has_backward for sample in pair)]
        if self.contest.attributes is not None and not complete and len(pairs) < ENOUGH:
            return None  # the backward passes may follow
        known = [[sample.seconds() for sample in pair] for pair in complete or pairs]
        times = [(aten, compiled) for aten, compiled in known if aten is not None and compiled is not None]
        return decided(times, len(pairs) >= MOST and len(times) == len(known))

    def _end(self, sampler: Any, choice: Choice) -> Kept:
        """Keep what was chosen, from this call on."""
        kept = self.contest.original.with_aten() if choice.keeps_aten else self.compiled
        if choice is not self.contest.choices.find(self.sizes):
            self.contest.decide(self.sizes, choice)
        return self._stop(sampler, kept)

    def _stop(self, sampler: Any, kept: Kept) -> Kept:
        sampler.target = sampler.check = kept
        sampler.countdown = 0
        for backward in self.watched:
            backward.end()
        self.watched, self.pairs = [], []
        return kept


def decided(times: Sequence[tuple[float, float]], last: bool = False) -> Choice | None:
    """The choice that follows from times of ATen and of the compiled graph in pairs of neighbouring calls; None if more
    are needed. `last`: there will be no more."""
    if len(times) < (1 if last else CLEAR):
        return None
    aten, compiled = (statistics.median(each) for each in zip(*times, strict=True))
    if max(c for _, c in times) <= CLEARLY * min(a for a, _ in times):
        return Choice(compiled, aten, False)
    if len(times) < ENOUGH:
        return Choice(compiled, aten, False) if last else None
    lead = sum(a < c for a, c in times) - sum(c < a for a, c in times)  # of ATen, in pairs
    sure = 2 * math.sqrt(len(times))  # two standard deviations, were both equally fast
    if lead >= sure and aten < MARGIN * compiled:
        return Choice(compiled, aten, True)
    return Choice(compiled, aten, False) if last or (lead <= -sure and compiled <= aten) else None


def _observed(device: Any) -> bool:
    """Whether something around the call would see the operators that ATen runs, or records the call."""
    return bool(
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch.autograd._profiler_enabled()
        or (device is not None and device.capturing())
    )


def _fits(original: Original, device: Any) -> bool:
    """Whether the memory that is free now holds the results of all operators with ease: ATen's operators may need more
    memory than the compiled graph."""
    free = _free_bytes(device)
    return free is None or original.result_bytes() <= MEMORY * free


def result_bytes(gm: fx.GraphModule) -> int:
    """The bytes of the results of all operators of a graph, views included; symbolic sizes count as their hints."""
    found = 0
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output", "get_attr"):
            values = pytree.tree_leaves(node.meta.get("example_value", node.meta.get("val")))
            found += sum(_hint(x.numel()) * x.element_size() for x in values if isinstance(x, torch.Tensor))
    return found


def _hint(size: Any) -> int:
    if isinstance(size, torch.SymInt):
        return int(size.node.hint or 0) if size.node.has_hint() else 0
    return int(size)


def _free_bytes(device: Any) -> int | None:
    """The bytes that are free on a device; None if that is not known."""
    if device is None:
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError):
            return None
    return device.free_bytes()
