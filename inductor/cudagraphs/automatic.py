"""CUDA graphs in the default mode: a plan is recorded by itself where its calls are found to be bound by the host.

The first calls run the plan. Of some of them the host's time is measured, and the time between two events around the
call on the GPU. If the second is hardly longer, the GPU waited for the host, and from then on calls are recorded and
replayed. Some replays are measured, too: unless they take both the host and the GPU less time than the plan did, which
they may not where results are large, calls run the plan again. Results are copied out of the recording's memory, so
that they are ordinary tensors: a program that uses one on another stream and calls `record_stream`, say, is as safe as
without a recording. Plans with many or large results, with much scratch memory, or with random numbers are not recorded
by themselves, nor are those of training.
"""

from __future__ import annotations

import math
import statistics
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..dtypes import dtype_of
from ..extension import _C
from ..log.stages import show
from ..runtime.aten import overload
from ..runtime.plan import Form
from ..runtime.plan_spec import Arena, Extern, KernelCall, Launch, PlanSpec
from .device import device_of, devices
from .recorder import Recorder
from .refusal import NotCapturable, refusal, without_dropout
from .spec import RecordedSpec, recorded_spec

MIN_CALLS = 2  # kernels and ATen calls of a plan
SKIPPED = 2  # calls before the first that is measured: they load kernels and libraries
SAMPLES = 3
MAX_MEASURED = 32  # calls; by then the GPU has never been done with enough of them, so it is not waiting for the host
MIN_HOST_SECONDS = 14e-6  # of a call of the plan; a replay with the copy of one result takes less
FIRST_REPLAYS = 4  # calls before the first replay that is measured: they make recordings
REPLAYS = 5
FASTER = 1.0  # the plan runs again if replays take the host or the GPU at least this many times as long
WAITING = 1.3  # the GPU waits for the host if its time is at most this many times the host's
MAX_RESULTS = 4
MAX_BYTES = 128 << 20  # of scratch memory and results, which a recording keeps


def recorded_if_host_bound(
    plan: Callable[..., Any], spec: PlanSpec, kernels: Sequence[Any], bound: Sequence[torch.Tensor], form: Form
) -> Callable[..., Any]:
    """`plan`, or a callable that decides in its first calls whether to record it. The arguments as of `recorded`."""
    on_gpu = spec.device in devices or (spec.device.startswith("cuda:") and torch.cuda.is_initialized())
    calls = sum(isinstance(step, Launch | KernelCall | Extern) for step in spec.steps)
    if _C is None or not on_gpu or calls < MIN_CALLS:
        return plan
    trial = Trial(plan, spec, kernels, bound, form)
    sampler = _C.Sampler(plan, trial, SKIPPED + 1)
    trial.sampler = weakref.ref(sampler)
    return sampler


class Trial:
    """The calls of a plan that are measured, and the decision. `sampler` is what the program calls."""

    sampler: weakref.ref[Any]

    def __init__(
        self, plan: Callable[..., Any], spec: PlanSpec, kernels: Sequence[Any], bound: Sequence[torch.Tensor],
        form: Form,
    ) -> None:
        self.plan, self.spec, self.kernels, self.bound, self.form = plan, spec, kernels, bound, form
        self.samples: list[tuple[float, Callable[[], float | None]]] = []
        self.measured = 0

    def __call__(self, *args: Any) -> Any:
        sampler = self.sampler()
        assert sampler is not None  # it is running this
        device = device_of(self.spec.device)
        sampler.countdown = 1
        with device.current():
            if device.capturing():
                return self.plan(*args)
            timer = device.timer()
            start = time.perf_counter()
            result = self.plan(*args)
            self.samples.append((time.perf_counter() - start, timer()))
        self.measured += 1
        known = [(host, gpu()) for host, gpu in self.samples]
        pairs = [(host, gpu) for host, gpu in known if gpu is not None]
        if len(pairs) >= SAMPLES or self.measured >= MAX_MEASURED:
            host = statistics.median(host for host, _ in pairs) if pairs else 0.0
            longest = statistics.median(map(max, pairs)) if pairs else 0.0
            chosen = self._choice(device, pairs)
            sampler.target = chosen
            if chosen is self.plan:
                sampler.check, sampler.countdown = chosen, 0
            else:
                comparison = Comparison(self.plan, chosen, device, host, longest, self.sampler)
                sampler.check, sampler.countdown = comparison, FIRST_REPLAYS + 1
            self.samples = []
        return result

    def _choice(self, device: Any, samples: Sequence[tuple[float, float]]) -> Callable[..., Any]:
        """What calls run from now on: the plan, or its recordings."""
        if len(samples) < SAMPLES:
            return self.plan
        host = statistics.median(host for host, _ in samples)
        ratio = statistics.median(gpu / host for host, gpu in samples)
        show("cudagraphs", f"a call takes the host {host * 1e6:.0f} us, the GPU {ratio:.2f} of that")
        if host < MIN_HOST_SECONDS or ratio > WAITING or draws(self.spec) or refusal(self.spec) is not None:
            return self.plan
        try:
            derived = recorded_spec(self.spec)
        except NotCapturable:
            return self.plan
        if not _small(self.spec, derived):
            return self.plan
        recorder = Recorder(
            device, self.plan, self.spec, derived, self.kernels, self.bound, self.form, lambda reason: None, True
        )
        return recorder.replay()


class Comparison:
    """The replays that are measured, and the decision whether calls are replayed or run the plan. A call of that takes
    the host `host` seconds; `longest` is what the host or the GPU takes, whichever takes longer."""

    def __init__(
        self, plan: Callable[..., Any], replay: Callable[..., Any], device: Any, host: float, longest: float,
        sampler: weakref.ref[Any],
    ) -> None:
        self.plan, self.replay, self.device, self.sampler = plan, replay, device, sampler
        self.host, self.longest = host, longest
        self.samples: list[tuple[float, Callable[[], float | None]]] = []

    def __call__(self, *args: Any) -> Any:
        sampler = self.sampler()
        assert sampler is not None  # it is running this
        sampler.countdown = 1
        with self.device.current():
            if self.device.capturing():
                return self.replay(*args)
            timer = self.device.timer()
            start = time.perf_counter()
            result = self.replay(*args)
            self.samples.append((time.perf_counter() - start, timer()))
        if len(self.samples) == REPLAYS:
            sampler.target = self.replay if self._is_faster() else self.plan
            sampler.check, sampler.countdown = sampler.target, 0
            self.samples = []
        return result

    def _is_faster(self) -> bool:
        """Whether a replay takes less time than a call of the plan. The GPU's time is that of replays that are over."""
        host = statistics.median(host for host, _ in self.samples)
        known = [(host, gpu) for host, timer in self.samples if (gpu := timer()) is not None]
        longest = statistics.median(map(max, known)) if known else host
        show("cudagraphs", f"a replay takes the host {host * 1e6:.0f} us, the longer of both {longest * 1e6:.0f} us")
        return host < FASTER * self.host and longest < FASTER * self.longest


def draws(spec: PlanSpec) -> bool:
    """Whether the plan draws random numbers."""
    calls = (step for step in spec.steps if isinstance(step, Extern) and not without_dropout(step))
    return any(torch.Tag.nondeterministic_seeded in overload(step.target).tags for step in calls)


def _small(spec: PlanSpec, derived: RecordedSpec) -> bool:
    """Whether a recording keeps little memory, and its results take little time to copy."""
    results = [memory for memory in derived.memories if not memory.seed]
    scratch = sum(step.nbytes for step in spec.steps if isinstance(step, Arena))
    taken = sum(math.prod(m.size) * (dtype_of(m.dtype).itemsize if m.dtype else 8) for m in results)
    return len(results) <= MAX_RESULTS and scratch + taken <= MAX_BYTES
