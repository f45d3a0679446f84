"""Graphs that are compiled while the program goes on, for `options={"background": True}`.

A call captures its function as always. Another process compiles the graph (`CompiledElsewhere`); where that is
impossible, the call generates the code, too, and only the kernels are built by other processes (`Building`). Until the
kernels are there, calls run the captured graph with ATen operators. The first call after that makes the plan, which
takes milliseconds, and runs it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic

import torch
from torch import fx
from torch._guards import tracing

from .aot.fake import fake_mode
from .artifact import Artifact, Kept, TrainingArtifact, is_stored
from .assembly import build_kernels
from .build import count_kernels
from .cache import graph_store
from .compile_report import CompileReport
from .compiler_process import client
from .compiler_process.job import Job
from .eager.operator_errors import run_with_aten
from .eager.saved_tensors import saving_is_observed
from .fallback import fall_back
from .log.stages import count, show
from .process.compile_lock import compile_lock, make_once, without_lock
from .process.import_stubs import stub_torch_compiler
from .runtime import triton_build
from .runtime.processes import Processes

# Makes the callable of a graph from the kernels of each of its artifacts.
Finish = Callable[[Sequence[list[Any]]], Callable[..., Any]]


class Built:
    """The kernels of artifacts, built at once."""

    def __init__(self, kernels: Sequence[list[Any]]) -> None:
        self._kernels = kernels

    def use(self, gm: fx.GraphModule, finish: Finish, strict: bool) -> Callable[..., Any]:
        """The callable that `finish` makes of the kernels."""
        return finish(self._kernels)


class Building:
    """The kernels of artifacts, which a thread builds, one `Building` after another."""

    def __init__(self, artifacts: Sequence[Artifact], report: CompileReport) -> None:
        self._artifacts, self._report = artifacts, report
        self._kernels: list[list[Any]] = []
        self._error: Exception | None = None
        self._done = threading.Event()
        self._process = os.getpid()
        for artifact in artifacts:
            count_kernels(artifact, report)
        _builder.put(self)

    def use(self, gm: fx.GraphModule, finish: Finish, strict: bool) -> Callable[..., Any]:
        """A callable that runs `gm` with ATen until the kernels are built. If they cannot be built, it always does,
        after one warning; with `strict`, its calls raise CompileError then. With kernels that are built already, what
        `finish` makes of them. A call within a checkpoint waits for the kernels: what repeats it must run the same."""
        if self.ready():
            return self._finished(gm, finish, strict)
        eager = run_with_aten(gm)
        compiled: list[Callable[..., Any]] = []

        def call(*args: Any) -> Any:
            if not compiled and saving_is_observed():
                without_lock(lambda: self.wait(None))
                with compile_lock:
                    if not compiled:
                        compiled.append(self._finished(gm, finish, strict))
            if not compiled:
                # a call waits for no other thread that compiles
                if not self.ready() or not compile_lock.acquire(blocking=False):
                    return eager(*args)
                try:
                    if not compiled:
                        compiled.append(self._finished(gm, finish, strict))
                finally:
                    compile_lock.release()
            return compiled[0](*args)

        return call

    def ready(self) -> bool:
        """Whether the kernels are built, or have failed to. A forked child, which has no such thread, builds them."""
        if os.getpid() != self._process:
            self._process, done = os.getpid(), self._done.is_set()
            self._done = threading.Event()  # the thread may have held the lock of the other one
            if not done:
                self.run_in_child()
            self._done.set()
        return self._done.is_set()

    def run_in_child(self) -> None:
        """Build the kernels in a forked child, for which no thread does."""
        self.run(Processes())

    def wait(self, seconds: float | None) -> bool:
        """Wait until the kernels are built, or have failed to; False if that takes longer than this."""
        return self.ready() or self._done.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))

    def run(self, processes: Processes) -> None:
        """Build the kernels; compilers run in this group of processes."""
        start = time.perf_counter()
        try:
            self._kernels = [build_kernels(artifact, processes) for artifact in self._artifacts]
        except Exception as error:  # raised, or shown in a warning, by the next call
            self._error = error
        seconds = self._report.seconds
        seconds["build"] = seconds.get("build", 0.0) + time.perf_counter() - start
        self._done.set()

    def _finished(self, gm: fx.GraphModule, finish: Finish, strict: bool) -> Callable[..., Any]:
        if self._error is not None:
            return fall_back(gm, self._error, strict)
        with tracing(None):
            return finish(self._kernels)


class CompiledElsewhere(Building, Generic[Kept]):
    """A graph that another process compiles. `kind`: the class of what it is compiled to; `again`: compiles the graph
    for the arguments of a call in this process, which is done if the other one could not."""

    def __init__(
        self, job: Job, kind: type[Kept], again: Callable[[Sequence[Any]], Callable[..., Any]], report: CompileReport
    ) -> None:
        self._job, self._again = job, again
        self._kind: type[Kept] = kind
        self._made: Kept | None = None
        super().__init__((), report)

    def run(self, processes: Processes) -> None:
        """Have the other process compile the graph, and load the kernels, which it has built."""
        try:
            made: Kept = self._compiled()
        except client.WorkerFailed as error:
            why = str(error)
            count("not_compiled_elsewhere")
            show("fallbacks", lambda: f"a graph is compiled in this process after all: {why}")
            self._done.set()
            return
        count("compiled_elsewhere")
        self._artifacts = (made.forward, *made.backward) if isinstance(made, TrainingArtifact) else (made,)
        for artifact in self._artifacts:
            count_kernels(artifact, self._report)
        self._made = made
        super().run(processes)

    def _compiled(self) -> Kept:
        data, seconds = client.run(self._job)
        for name, each in seconds.items():
            self._report.seconds[name] = self._report.seconds.get(name, 0.0) + each
        made = graph_store.load(data, self._kind)
        if made is None:
            raise client.WorkerFailed("what the other process has compiled cannot be read")
        is_stored(self._job.stored_as)  # the cache notes that this process uses the entry
        return made

    def run_in_child(self) -> None:
        """Leave the graph to the next call of the forked child."""
        self._made = None  # the thread may have been about to load the kernels

    def _finished(self, gm: fx.GraphModule, finish: Finish, strict: bool) -> Callable[..., Any]:
        if self._made is None:
            return _CompiledAtFirstCall(self._again)
        return super()._finished(gm, finish, strict)

    def use_made(
        self, gm: fx.GraphModule, finish: Callable[[Kept, Sequence[list[Any]]], Callable[..., Any]], strict: bool
    ) -> Callable[..., Any]:
        """As `use`; `finish` makes the callable of what the graph is compiled to and of its kernels."""

        def finished(kernels: Sequence[list[Any]]) -> Callable[..., Any]:
            assert self._made is not None
            return finish(self._made, kernels)

        return self.use(gm, finished, strict)


class _CompiledAtFirstCall:
    """Calls what `compile` returns for the arguments of the first call."""

    def __init__(self, compile: Callable[[Sequence[Any]], Callable[..., Any]]) -> None:
        self._compile = compile
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        found = self._compiled or make_once(id(self), lambda: self._compiled, lambda: self._compile(args))
        self._compiled = found
        return found(*args)


class _Builder:
    """The thread that builds what is put here. It starts with the first and ends with the process, which waits for no
    compiler."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Building] = queue.SimpleQueue()
        self._all: list[Building] = []
        self._lock = threading.Lock()
        self._process = 0
        self._processes = Processes()

    def put(self, building: Building) -> None:
        with self._lock:
            self._all = [other for other in self._all if not other.ready()]
            self._all.append(building)
            if self._process != os.getpid():  # the first, or the first after a fork
                self._process, self._queue, self._processes = os.getpid(), queue.SimpleQueue(), Processes()
                # A normal `atexit` function runs after Python has waited for the threads that wait for compilers.
                threading._register_atexit(self.stop)  # type: ignore[attr-defined]
                threading.Thread(target=self._run, name="pyframe-builder", daemon=True).start()
            self._queue.put(building)

    def wait(self, seconds: float | None) -> bool:
        """Wait for everything that was put here; False if that takes longer than this."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            waited = list(self._all)
        return all(each.wait(None if end is None else max(0.0, end - time.monotonic())) for each in waited)

    def stop(self) -> None:
        """End the compilers."""
        if self._process == os.getpid():
            self._processes.stop()
            triton_build.stop()
            client.stop()

    def _run(self) -> None:
        mine, processes = self._queue, self._processes
        while True:
            mine.get().run(processes)


_builder = _Builder()


def wait_for_kernels(seconds: float | None = None) -> bool:
    """Wait until all kernels that are built in the background are ready; the next calls use them. Returns False if that
    takes longer than `seconds`."""
    return _builder.wait(seconds)


def prepare() -> None:
    """Start the process that compiles graphs, and load what the first capture needs, so that the first call does not
    wait for either."""
    with contextlib.suppress(client.WorkerFailed):  # graphs are compiled in this process then
        client.start()
    load_fake_operators()


@functools.cache
def load_fake_operators() -> None:
    """Have torch import what its fake operators need: releases of torch import packages of distributed tensors, and
    with them sympy, when the first normalization is traced, which takes a second."""
    with compile_lock, stub_torch_compiler, fake_mode(), torch.no_grad():
        x = torch.empty(2, 2)
        torch.nn.functional.layer_norm(torch.nn.functional.linear(x, x), (2,))
