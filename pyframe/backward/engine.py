"""Decides which backward passes are captured.

While compiled autograd is on anywhere in the process, the function through which `Tensor.backward`,
`torch.autograd.backward` and `torch.autograd.grad` call the engine is replaced by `run_backward`. For a pass that can
be captured it makes a `Recorder` the engine's compiler object until the engine has described the pass. If that fails
nothing has run yet, so the pass runs eagerly. The compiler object belongs to the whole process, so passes of several
threads take turns: one is captured, and those that begin meanwhile run eagerly.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C._dynamo import compiled_autograd as torch_engine

from inductor.log.stages import show
from inductor.log.warnings import warn_once

from .. import _C
from ..metrics import counters
from ..stance import current as current_stance
from .autograd_graph import AutogradGraph
from .errors import Uncapturable
from .program import BackwardCall, Program, Settings, current, will_engine_execute_node
from .recorder import Recorder

_eagerly: Callable[..., Any] = torch.autograd._engine_run_backward
_engine_runs = torch._C._will_engine_execute_node
_is_batched = torch._C._functorch.is_legacy_batchedtensor
_installing = threading.Lock()
_users = 0


class _Active(threading.local):
    settings: tuple[Settings | None, ...] = ()


_active = _Active()
_of_process: Settings | None = None


def enter(settings: Settings | None) -> None:
    """Capture the backward passes of this thread with these settings until `leave`; None: run them eagerly."""
    _install(1)
    _active.settings += (settings,)


def leave() -> None:
    """Undo the last `enter` of this thread."""
    _active.settings = _active.settings[:-1]
    _install(-1)


def is_on() -> bool:
    """Whether backward passes of this thread are captured now."""
    return _current_settings() is not None


def is_on_for_process() -> bool:
    """Whether `set_of_process` has been called with settings."""
    return _of_process is not None


def _current_settings() -> Settings | None:
    return _active.settings[-1] if _active.settings else _of_process


def set_of_process(settings: Settings | None) -> None:
    """Capture the backward passes of all threads that have not called `enter`; None: do not."""
    global _of_process
    if (settings is None) != (_of_process is None):
        _install(1 if settings is not None else -1)
    _of_process = settings


def _install(change: int) -> None:
    global _users
    with _installing:
        _users += change
        torch.autograd._engine_run_backward = run_backward if _users else _eagerly
        torch._C._will_engine_execute_node = will_engine_execute_node if _users else _engine_runs


@_C.disable_wrapper  # below a compiled function that calls backward(), this is not to be captured
def run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """In the place of `torch.autograd._engine_run_backward`, which gets the gradients of the outputs, whether to retain
    and to create a graph, and the inputs."""
    settings = _current_settings()
    gradients, retain_graph, create_graph, inputs = args[:4]
    if settings is not None and not create_graph and current.call is None and _is_plain(gradients):
        return _captured(settings, AutogradGraph(t_outputs, inputs), retain_graph, t_outputs, *args, **kwargs)
    return _run_eagerly(t_outputs, *args, **kwargs)


def _is_plain(gradients: Sequence[Any]) -> bool:
    """Whether nothing asks to see each operator of the backward pass: no dispatch mode, transform, anomaly mode or
    other compiler of backward passes."""
    return not (
        torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active()
        or torch.is_anomaly_enabled() or torch.jit.is_tracing() or current_stance() == "force_eager"
        or any(x is not None and _is_batched(x) for x in gradients)
    )  # fmt: skip


class _Turns:
    """The backward passes of all threads: the engine describes one pass at a time, and only while no thread is in an
    eager one. Eager passes wait while one is described."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.eager = 0
        self.described = self.captured = False

    def begin(self) -> bool:
        """Whether a captured pass may begin now. It is then being described."""
        with self.changed:
            if self.eager or self.captured:
                return False
            self.captured = self.described = True
            return True

    def end_description(self) -> None:
        with self.changed:
            self.described = False
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.captured = self.described = False
            self.changed.notify_all()

    @contextlib.contextmanager
    def eager_pass(self) -> Iterator[None]:
        with self.changed:
            self.changed.wait_for(lambda: not self.described)
            self.eager += 1
        try:
            yield
        finally:
            with self.changed:
                self.eager -= 1


_turns = _Turns()


class _Description:
    """The time in which the engine describes one backward pass to a recorder."""

    def __init__(self, graph: AutogradGraph) -> None:
        self.graph = graph
        self.before: tuple[Any, bool] | None = None
        self.begun = False

    def recorder(self) -> Any:
        """Called by the engine if it has no program for a pass with this structure."""
        self.begun = True
        return Recorder(self.graph.order, _recorded)

    def start(self) -> bool:
        """False if torch's own compiled autograd is on."""
        self.before = torch_engine.set_autograd_compiler(self.recorder, True)
        if self.before[0] is None:
            return True
        self.stop()
        return False

    def stop(self) -> None:
        """Take the recorder away again, if that has not been done."""
        if self.before is not None:
            before, self.before = self.before, None
            torch_engine.set_autograd_compiler(*before)
            _turns.end_description()


def _recorded(program: Program) -> None:
    counters["backward_programs"] += 1
    show("backward", lambda: program.source)


def _run_eagerly(*args: Any, **kwargs: Any) -> Any:
    with _turns.eager_pass():
        return _eagerly(*args, **kwargs)


def _captured(settings: Settings, graph: AutogradGraph, retain_graph: bool, *args: Any, **kwargs: Any) -> Any:
    """Call the engine with a recorder as its compiler, and again without one if it cannot describe the pass.

    An error of torch's while it describes a node is raised, because the node is no longer intact.
    """
    if not _turns.begin():
        return _run_eagerly(*args, **kwargs)
    description = _Description(graph)
    current.call = call = BackwardCall(settings, graph, retain_graph, description.stop)
    reason = None
    try:
        if description.start():
            return _eagerly(*args, **kwargs)
    except (Uncapturable, RuntimeError) as error:
        if call.started or description.begun and not isinstance(error, Uncapturable):
            raise
        reason = str(error).partition("\n")[0]
    finally:
        current.call = None
        description.stop()
        _turns.end()
    result = _run_eagerly(*args, **kwargs)  # raises the error if it is one of the program
    if reason is not None:
        counters["backward_fallbacks"] += 1
        warn_once("compiled_autograd", f"a backward pass was not captured and ran eagerly: {reason}")
    return result
