"""What recording needs of CUDA: an interface, and its implementation for one GPU.

`Device` is all that the rest of the package calls, so that tests can run it on the CPU with an implementation that
replays the plan at the recorded addresses.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Body = Callable[[Sequence[torch.Tensor]], None]


class Graph(Protocol):
    """A recorded graph."""

    def replay(self) -> None:
        """Queue the recorded work on the current stream."""


class Device(Protocol):
    """One device and its pool of scratch memory. `lock` is held while a call of the device's recordings is recorded or
    queued. `memories` are the memories of its recordings, as long as they live. `generation` changes when recordings
    made before may not be replayed any more. `raw` is the stream of the last replay. `capturing_now` is `capturing` for
    callers that know that the device is the current one."""

    lock: threading.Lock
    memories: weakref.WeakSet[Any]
    generation: int
    raw: int | None
    capturing_now: Callable[[], bool]

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Makes the device the current one."""

    def capturing(self) -> bool:
        """Whether the current stream is being captured already."""

    def timer(self) -> Callable[[], Callable[[], float | None]]:
        """Start a measurement of work on the current stream. The function returned ends it, and returns a function that
        says how many seconds the device needed; None while it is at work."""

    def free_bytes(self) -> int:
        """The memory that allocations on the device can still have."""

    def capture(self, body: Body, tensors: Sequence[Any]) -> Graph:
        """Record what `body(tensors)` queues, without executing it. The graph keeps none of the tensors alive. What
        `body` raises is raised, and RuntimeError if it did something that cannot be recorded."""

    def enter_stream(self, used: set[int]) -> Any:
        """Let the current stream wait for what the stream of the last replay has queued by now. Adds it to `used`; the
        stream if it was not in there, otherwise None."""


class Cuda:
    """The CUDA device with this index."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.lock = threading.Lock()
        self.memories: weakref.WeakSet[Any] = weakref.WeakSet()
        self.generation = 0
        self.side = torch.cuda.Stream(index)
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # those whose scratch memory is in `pool`
        self.last: Any = None  # the stream of the last replay
        self.raw: int | None = None
        self.capturing_now: Callable[[], bool] = torch._C._cuda_isCurrentStreamCapturing
        self._raw_stream = torch._C._cuda_getCurrentRawStream

    def current(self) -> contextlib.AbstractContextManager[Any]:
        if torch.cuda.current_device() == self.index:
            return contextlib.nullcontext()
        return torch.cuda.device(self.index)

    def capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def timer(self) -> Callable[[], Callable[[], float | None]]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream(self.index)
        start.record(stream)

        def seconds() -> float | None:
            return start.elapsed_time(end) * 1e-3 if end.query() else None

        def stop() -> Callable[[], float | None]:
            end.record(stream)
            return seconds

        return stop

    def free_bytes(self) -> int:
        unused = torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)
        return torch.cuda.mem_get_info(self.index)[0] + unused

    def capture(self, body: Body, tensors: Sequence[Any]) -> Graph:
        graph = torch.cuda.CUDAGraph()
        if not self.graphs:
            self.pool = torch.cuda.graph_pool_handle()  # torch gives a pool up with its last graph
        generator = torch.cuda.default_generators[self.index]
        state = generator.clone_state()
        collects = gc.isenabled()
        gc.disable()  # a finalizer could free a graph or an event, which is not allowed during a capture
        try:
            with torch.cuda.stream(self.side):
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    body(tensors)
                except BaseException:
                    with contextlib.suppress(RuntimeError):  # the capture is invalid already
                        graph.capture_end()
                    raise
                graph.capture_end()
        except BaseException:
            self._abandon_capture(generator, state)
            raise
        finally:
            if collects:
                gc.enable()
        self.graphs.add(graph)
        return graph

    def _abandon_capture(self, generator: torch.Generator, state: torch.Generator) -> None:
        """Clean up after a capture that failed: where CUDA refuses to end it, torch ends neither the allocations from
        the pool nor the generator's record of draws. The generator gets a new state, of which earlier recordings do
        not know, so these are given up."""
        with contextlib.suppress(RuntimeError):  # it has ended them
            torch._C._cuda_endAllocateToPool(self.index, self.pool)
        generator.graphsafe_set_state(state)
        self.generation += 1
        self.graphs.clear()  # the pool may not be usable any more; its graphs keep it

    def enter_stream(self, used: set[int]) -> Any:
        raw = self._raw_stream(self.index)
        if raw != self.raw:
            stream = torch.cuda.current_stream(self.index)
            if self.last is not None:
                stream.wait_stream(self.last)
            self.last, self.raw = stream, raw
        if raw in used:
            return None
        used.add(raw)
        return self.last


# The devices that recordings were asked for. Tests add one for the CPU.
devices: dict[str, Any] = {}


def device_of(name: str) -> Any:
    """The Device of "cuda:N"; None for the CPU, where graphs are not recorded."""
    found = devices.get(name)
    if found is None and name.startswith("cuda:"):
        found = devices[name] = Cuda(int(name.removeprefix("cuda:")))
    return found
