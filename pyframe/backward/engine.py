"""Decides which backward passes are captured.

While compiled autograd is on anywhere in the process, the function through which `Tensor.backward`,
`torch.autograd.backward` and `torch.autograd.grad` call the engine is replaced by `run_backward`. For a pass that can
be captured it makes a `Recorder` the engine's compiler object until the engine has described the pass. If that fails
nothing has run yet, so the pass runs eagerly. The compiler object belongs to the whole process, so one thread at a time
has its pass described, and backward passes of other threads wait for that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._dynamo import compiled_autograd as torch_engine

from inductor.log.stages import show
from inductor.log.warnings import warn_once

from ..metrics import counters
from ..stance import current as current_stance
from .autograd_graph import AutogradGraph
from .errors import Uncapturable
from .program import BackwardCall, Program, Settings, current, will_engine_execute_node
from .recorder import Recorder

_eagerly: Callable[..., Any] = torch.autograd._engine_run_backward
_engine_runs = torch._C._will_engine_execute_node
_is_batched = torch._C._functorch.is_legacy_batchedtensor
_describing = threading.RLock()
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


def is_on_for_process() -> bool:
    """Whether `set_of_process` has been called with settings."""
    return _of_process is not None


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


def run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """In the place of `torch.autograd._engine_run_backward`, which gets the gradients of the outputs, whether to retain
    and to create a graph, and the inputs."""
    settings = _active.settings[-1] if _active.settings else _of_process
    gradients, retain_graph, create_graph, inputs = args[:4]
    if settings is not None and not create_graph and current.call is None and _is_plain(gradients):
        return _captured(settings, AutogradGraph(t_outputs, inputs), retain_graph, t_outputs, *args, **kwargs)
    with _describing:  # wait until no recorder is installed
        pass
    return _eagerly(t_outputs, *args, **kwargs)


def _is_plain(gradients: Sequence[Any]) -> bool:
    """Whether nothing asks to see each operator of the backward pass: no dispatch mode, transform, anomaly mode or
    other compiler of backward passes."""
    return not (
        torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active()
        or torch.is_anomaly_enabled() or torch.jit.is_tracing() or current_stance() == "force_eager"
        or any(x is not None and _is_batched(x) for x in gradients)
    )  # fmt: skip


class _Description:
    """The time in which the engine describes one backward pass to a recorder."""

    def __init__(self) -> None:
        self.before: tuple[Any, bool] | None = None

    def start(self, graph: AutogradGraph) -> bool:
        """False if the pass cannot be described: another thread is in a backward pass, or torch's own compiled autograd
        is on."""
        _describing.acquire()
        try:
            recorder: Any = functools.partial(Recorder, graph.order, _recorded)
            before = torch_engine.set_autograd_compiler(recorder, True)
        except RuntimeError:
            _describing.release()
            return False
        self.before = before
        if before[0] is not None:
            self.stop()
            return False
        return True

    def stop(self) -> None:
        """Take the recorder away again, if that has not been done."""
        if self.before is not None:
            before, self.before = self.before, None
            torch_engine.set_autograd_compiler(*before)
            _describing.release()


def _recorded(program: Program) -> None:
    counters["backward_programs"] += 1
    show("backward", lambda: program.source)


def _captured(settings: Settings, graph: AutogradGraph, retain_graph: bool, *args: Any, **kwargs: Any) -> Any:
    """Call the engine with a recorder as its compiler, and again without one if it cannot describe the pass."""
    description = _Description()
    if not description.start(graph):
        return _eagerly(*args, **kwargs)
    current.call = call = BackwardCall(settings, graph, retain_graph, description.stop)
    try:
        return _eagerly(*args, **kwargs)
    except (Uncapturable, RuntimeError) as error:
        if call.started:
            raise
        reason = str(error).partition("\n")[0]
    finally:
        current.call = None
        description.stop()
    result = _eagerly(*args, **kwargs)  # raises the error if it is one of the program
    counters["backward_fallbacks"] += 1
    warn_once("compiled_autograd", f"a backward pass was not captured and ran eagerly: {reason}")
    return result
