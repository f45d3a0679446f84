"""Decides for each call of a plan whether a recording of it is replayed, a new one is made, or the plan runs."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..dtypes import dtype_of
from ..extension import _C
from ..log.stages import count, show
from ..log.warnings import warn_once
from ..overlap import address_span, intersect
from ..runtime.plan import Form, make_plan
from ..runtime.plan_py import written
from ..runtime.plan_spec import INPUT_ALIGNMENT, Extern, KernelCall, Launch, PlanSpec
from .device import Device, device_of
from .recording import Recording, encode_results
from .refusal import NotCapturable, refusal, unused_seeds
from .spec import Owned, RecordedSpec, recorded_spec

MIN_CALLS = 2  # kernels and ATen calls of a plan; the host is done with one of them as soon as with a replay
WARM_UP = 2  # calls of the plan before one is recorded
MAX_SAME = 2  # recordings for the same inputs whose results are in use at the same time
MAX_MOVES = 3  # of an input that is a result of a recording, before it is copied
MAX_PARAMETER_MOVES = 8
MAX_KEPT = 8  # recordings of a plan at a time
MAX_RECORDINGS = 24  # recordings of a plan altogether; after that it runs unrecorded
MAX_UNASKED = 4  # the same for a plan that is recorded without having been asked for
MAX_UNASKED_COPIES = 1 << 20  # bytes of the inputs that each call of such a plan copies

_function_mode: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active


def recorded(
    plan: Callable[..., Any], spec: PlanSpec, kernels: Sequence[Any], bound: Sequence[torch.Tensor], form: Form,
    refused: Callable[[str], None],
) -> Callable[..., Any]:
    """`plan`, made from the other arguments as by `make_plan`, with its calls recorded and replayed. `plan` itself if
    it does not run on a GPU, if that would not make it faster, or if it cannot be recorded: `refused` is called with
    the reason, now or in a later call.
    """
    device = device_of(spec.device)
    if device is None:
        return plan
    if sum(isinstance(step, Launch | KernelCall | Extern) for step in spec.steps) < MIN_CALLS:
        show("cudagraphs", "a graph is not recorded: it has few kernels")
        return plan
    reason = refusal(spec)
    if reason is None:
        try:
            return Recorder(device, plan, spec, recorded_spec(spec), kernels, bound, form, refused).replay()
        except NotCapturable as error:
            reason = str(error)
    _report(reason, refused)
    return plan


def _report(reason: str, refused: Callable[[str], None]) -> None:
    show("cudagraphs", f"a graph is not recorded: {reason}")
    count("cudagraphs_refused")
    warn_once(f"cudagraphs {reason}", f"inductor: a graph runs without CUDA graphs: {reason}")
    refused(reason)


def _profiled(target: Any) -> contextlib.AbstractContextManager[Any]:
    """A range of torch's profiler named after a recorded plan, if the profiler is on."""
    if target.labels is None or not torch.autograd.profiler._is_profiler_enabled:
        return contextlib.nullcontext()
    return torch.autograd.profiler.record_function(target.labels[0])


def _label(target: Any, name: str) -> None:
    """Name a recorded plan in profiles. A replay is one range, so the names of its steps do not matter."""
    target.label((f"CUDA graph of {name}", *[""] * target.n_steps))


class Recorder:
    """A callable like `plan`, with `take` as a C plan has it. See the package's documentation for what it does.

    `replay()` is the callable to use: it replays in C what needs no decision, and calls the Recorder otherwise. It sees
    only the recordings in `offered`; None says that none will be made any more.

    `unasked`: recorded by itself in the default mode. All results are copied, and nothing is reported.
    """

    def __init__(
        self, device: Device, plan: Any, spec: PlanSpec, derived: RecordedSpec, kernels: Sequence[Any],
        bound: Sequence[torch.Tensor], form: Form, refused: Callable[[str], None], unasked: bool = False,
    ) -> None:
        self.device, self.plan, self.spec, self.derived = device, plan, spec, derived
        self.place = torch.device(spec.device)
        self.bound, self.form, self.refused = tuple(bound), form, refused
        self.count = len(spec.inputs) - len(self.bound)
        self.target: Any = make_plan(derived.spec, kernels, form="list")
        if plan.labels is not None:
            _label(self.target, plan.labels[0])
        self.written = written(spec) if spec.mutated else None
        self.ignored = unused_seeds(spec)
        tensors = [i for i, x in enumerate(spec.inputs) if x.kind == "tensor"]
        self.movable = [i for i in tensors if spec.inputs[i].device and i not in self.ignored]
        self.copied: set[int] = set()
        self.moves = [0] * len(spec.inputs)
        self.skip = self._skip_bytes()
        self.unasked = unasked
        self.handed_out = [not unasked] * len(derived.memories)
        self.dtypes = [memory.dtype for memory in derived.memories]
        self.recordings: dict[tuple[bytes, bool], list[Recording]] = {}
        self.last: list[int] = []  # the addresses in the last call without a replay
        self.calls, self.made = (WARM_UP - 1 if unasked else 0), 0
        self.stopped = False
        self.offered: tuple[tuple[Any, ...], bytes] | None = (), self.skip  # for replays in C, see `replay`

    def replay(self) -> Callable[..., Any]:
        """The callable for users of the plan."""
        functions = (
            self.device.capturing_now, torch.is_inference_mode_enabled, torch._C._storage_Use_Count,
            torch._foreach_copy_, self.written,
        )  # fmt: skip
        form = {"tuple": 0, "list": 1, "single": 2}[self.form]
        results = encode_results(self.derived.results)
        return _C.Replay(
            self.target, self, self.device, self.count, self.bound, form, self.spec.mutated, results,
            (_function_mode, _dispatch_modes, _transformed), functions,
        )  # fmt: skip

    def _offer(self) -> None:
        kept = (recording.for_c for same in self.recordings.values() for recording in same)
        self.offered = tuple(one for one in kept if one is not None), self.skip

    def __call__(self, *args: Any) -> Any:
        if len(args) != self.count or not self._may_replay():
            return self.plan(*args)
        with self.device.current():
            done = self._replayed(args)
        return self._learn(self.plan(*args)) if done is None else done

    def take(self, given: list[Any]) -> Any:
        """A call with the arguments in `given`, which is empty from then on."""
        if len(given) != self.count or not self._may_replay():
            return self.plan.take(given)
        with self.device.current():
            done = self._replayed(tuple(given))
        if done is None:
            return self._learn(self.plan.take(given))
        given.clear()
        return done

    def _may_replay(self) -> bool:
        """Whether nothing in this thread has to see the operators of the plan, or records already."""
        return not (self.stopped or _function_mode() or _dispatch_modes() or _transformed())

    def _replayed(self, args: tuple[Any, ...]) -> Any:
        """The results of a replay; None if the plan has to run."""
        if self.device.capturing() or not self.device.lock.acquire(blocking=False):
            return None
        try:
            inputs = (*args, *self.bound)
            recording = self._find(inputs)
            return None if recording is None else self._replay(recording, inputs)
        finally:
            self.device.lock.release()

    def _replay(self, recording: Recording, inputs: Sequence[Any]) -> Any:
        grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            with _profiled(self.target):
                recording.replay(inputs)
            if self.written is not None:
                recording.copy_back(inputs, self.spec.mutated)
                self.written([inputs[i] for i in self.spec.mutated])
        finally:
            torch._C._set_grad_enabled(grad)
        results = recording.results(inputs)
        return results[0] if self.form == "single" else results if self.form == "list" else tuple(results)

    # ---- which recording

    def _find(self, inputs: tuple[Any, ...]) -> Recording | None:
        """The recording to replay for these inputs, made now if need be; None if the plan has to run."""
        if any(not inputs[i].is_cuda and self.place.type == "cuda" for i in self.movable):
            return None
        key = self.target.addresses(inputs, self.skip), torch.is_inference_mode_enabled()
        for recording in self.recordings.get(key, ()):
            if recording.idle() and recording.valid():
                return None if self._overlapping(inputs) else recording
        return self._miss(inputs)

    def _miss(self, inputs: tuple[Any, ...]) -> Recording | None:
        """Make a recording for these inputs, unless it is too early for that, or not possible."""
        addresses = self._addresses(inputs)
        known, self.last = self.last or addresses, addresses
        self.calls += 1
        if self.calls <= WARM_UP or self._overlapping(inputs, everything=True):
            return None
        if not self._note_moved(inputs, known, addresses):
            return None
        key = self.target.addresses(inputs, self.skip), torch.is_inference_mode_enabled()
        same = [recording for recording in self.recordings.pop(key, []) if recording.valid()]
        if len(same) >= MAX_SAME:
            for recording in same:
                for number in recording.busy():
                    self.handed_out[number] = False
            same = []
        if self.made >= (MAX_UNASKED if self.unasked else MAX_RECORDINGS):
            self._stop("its inputs or the users of its results change too often")
            return None
        while sum(map(len, self.recordings.values())) + len(same) >= MAX_KEPT and self.recordings:
            self.recordings.pop(next(iter(self.recordings)))
        made = self._record(inputs)
        if made is not None:
            made.encode(*key, self.spec.mutated)
            self.recordings[key] = [*same, made]
        self._offer()
        return made

    def _record(self, inputs: Sequence[Any]) -> Recording | None:
        self.made += 1
        if "" in self.dtypes:
            self._stop("the dtype of a result is not known")
            return None
        try:
            recording = Recording(
                self.device, self.derived, self.target, inputs, sorted(self.copied), self.handed_out, self.dtypes,
                self.place,
            )
        except (NotCapturable, RuntimeError) as error:  # RuntimeError: CUDA refuses what an operator does
            self._stop(str(error).partition("\n")[0])
            return None
        count("cudagraphs_recorded")
        show("cudagraphs", lambda: f"recorded; copied inputs: {sorted(self.copied)}, kept: {self.handed_out}")
        return recording

    def _stop(self, reason: str) -> None:
        self.stopped = True
        self.recordings.clear()
        self.offered = None
        if self.unasked:
            show("cudagraphs", f"a graph is not recorded any more: {reason}")
        else:
            _report(reason, self.refused)

    # ---- inputs

    def _addresses(self, inputs: tuple[Any, ...]) -> list[int]:
        words = self.target.addresses(inputs, bytes(len(inputs)))
        return list(struct.unpack(f"{len(inputs)}q", words))

    def _skip_bytes(self) -> bytes:
        """A byte for each input: 1 for one that is copied, 2 for one whose address and contents do not matter."""
        return bytes(2 if i in self.ignored else int(i in self.copied) for i in range(len(self.spec.inputs)))

    def _note_moved(self, inputs: Sequence[Any], known: Sequence[int], addresses: Sequence[int]) -> bool:
        """Decide which inputs are copied from now on; False if these inputs cannot be recorded.

        Parameters, and results that recordings gave out (as the saved tensors of a backward are), mostly have few
        addresses, of which each gets a recording. Any other tensor that has moved is copied, and so is one that is not
        aligned.
        """
        moved = set()
        for i, (before, now) in enumerate(zip(known, addresses)):
            if i in self.ignored or i in self.copied or self.spec.inputs[i].kind != "tensor":
                continue
            if i in self.spec.aligned and now % INPUT_ALIGNMENT:
                if i in self.spec.mutated:
                    return False
                moved.add(i)
            elif now != before:
                self.moves[i] += 1
                few = MAX_PARAMETER_MOVES if isinstance(inputs[i], torch.nn.Parameter) else MAX_MOVES
                if self.moves[i] > few or not (few == MAX_PARAMETER_MOVES or self._is_ours(now)):
                    moved.add(i)
        if moved:
            self.copied |= moved
            if self.unasked and not self._may_copy():
                self._stop("its inputs change their addresses")
                return False
            self.skip = self._skip_bytes()
            self.recordings.clear()
            self._offer()
        return True

    def _may_copy(self) -> bool:
        """Whether a recording that nobody asked for may copy these inputs: they are small, and are not written."""
        specs = [self.spec.inputs[i] for i in self.copied]
        copied = sum(math.prod(x.size) * dtype_of(x.dtype).itemsize for x in specs)
        return self.copied.isdisjoint(self.spec.mutated) and copied <= MAX_UNASKED_COPIES

    def _is_ours(self, address: int) -> bool:
        return any(memory.holds(address) for memory in self.device.memories)

    def _overlapping(self, inputs: Sequence[Any], everything: bool = False) -> bool:
        """Whether an input that the plan writes may share memory with another. For inputs that are used in place this
        was found out when they were recorded; unless `everything`, only pairs with a copied one are looked at."""
        if not self.spec.mutated or not (self.copied or everything):
            return False
        spans = {i: address_span(x) for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
        return any(
            i != j and (everything or i in self.copied or j in self.copied)
            and intersect(spans[i], spans[j])
            for i in self.spec.mutated for j in spans
        )  # fmt: skip

    # ---- calls of the plan

    def _learn(self, result: Any) -> Any:
        """Learn from the results of a call of the plan the dtypes that the spec does not state."""
        if "" in self.dtypes:
            results = (result,) if self.form == "single" else result
            for ref, value in zip(self.derived.results, results):
                if isinstance(ref, Owned) and isinstance(value, torch.Tensor):
                    self.dtypes[ref.memory] = self.dtypes[ref.memory] or str(value.dtype).removeprefix("torch.")
        return result
