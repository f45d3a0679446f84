"""A recorded backward pass as a Python function, and its compiled forms."""

from __future__ import annotations

import itertools
import linecache
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _C
from .autograd_graph import AutogradGraph

_numbers = itertools.count()


class Program:
    """A function `(inputs, sizes, scalars, hooks, packed) -> gradients` from the source of a recorder.

    inputs: the tensors that the autograd graph has saved, and its leaves; sizes and scalars: numbers; hooks: functions,
    and the `ctx` of autograd functions; packed: what `saved_tensors_hooks` have packed. Without objects of the user,
    because the engine keeps programs for the whole process.
    """

    def __init__(self, source: str, namespace: dict[str, Any]) -> None:
        self.source = source
        name = f"<backward pass {next(_numbers)}>"
        linecache.cache[name] = len(source), None, source.splitlines(True), name
        exec(compile(source, name, "exec"), namespace)
        self.function: types.FunctionType = namespace["backward"]
        weakref.finalize(self, linecache.cache.pop, name, None).atexit = False

    def __call__(self, *args: Any) -> Any:
        """Run the function uncompiled; the engine wants programs to be callable."""
        return self.function(*args)


class Settings:
    """How programs are compiled, and those that are. compile_program: `pyframe.compile` with its settings."""

    def __init__(self, compile_program: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.compile_program = compile_program
        self.compiled: weakref.WeakKeyDictionary[Program, Callable[..., Any]] = weakref.WeakKeyDictionary()

    def form_of(self, program: Program) -> Callable[..., Any]:
        """The compiled form of a program."""
        form = self.compiled.get(program)
        if form is None:
            form = self.compiled[program] = self.compile_program(program.function)
        return form


class BackwardCall:
    """One backward pass of a thread that is to be captured.

    retain_graph: as the caller has passed it. described: called as soon as the engine has described the pass.
    """

    def __init__(
        self, settings: Settings, graph: AutogradGraph, retain_graph: bool, described: Callable[[], None]
    ) -> None:
        self.settings, self.graph, self.retain_graph, self.described = settings, graph, retain_graph, described
        self.started = False


class _Current(threading.local):
    call: BackwardCall | None = None


current = _Current()
_engine_runs = torch._C._will_engine_execute_node


@_C.disable_wrapper
def will_engine_execute_node(node: Any) -> bool:
    """In the place of the function of torch, which knows only what the engine itself runs."""
    call = current.call
    return call.graph.runs(node) if call is not None and call.started else _engine_runs(node)


class _Task(torch.autograd.Function):
    """Calls a function within a backward pass, so that it finds what hooks and `torch.utils.checkpoint` look for: the
    number of the pass, whether its graph is retained, and a place for callbacks at its end."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, work: Callable[[], None]) -> torch.Tensor:
        ctx.work = work
        return x.new_empty(())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.work()
        return None, None


def run_program(
    program: Program, inputs: list[torch.Tensor], sizes: Sequence[int], scalars: Sequence[Any], hooks: Sequence[Any],
    packed: Sequence[Any],
) -> Sequence[torch.Tensor | None]:
    """Called by the engine, which has freed the saved tensors unless the graph is retained: returns the gradients that
    the caller of `torch.autograd.grad` has asked for, none for `backward()`."""
    call = current.call
    if call is None:  # torch's own compiled autograd is on, and the engine knows a pass like this from here
        return program(inputs, sizes, scalars, hooks, packed)
    call.started = True
    call.described()
    results: list[Sequence[torch.Tensor | None]] = []
    form = call.settings.form_of(program)

    def work() -> None:
        results.append(form(inputs, sizes, scalars, hooks, packed))
        inputs.clear()

    with torch.enable_grad(), torch._C.DisableTorchFunction():
        start = _Task.apply(torch.empty((), device="cpu", requires_grad=True), work)
        seed = torch.empty((), device="cpu")
    torch.autograd.Variable._execution_engine.run_backward(
        (start,), (seed,), call.retain_graph, False, (), allow_unreachable=True, accumulate_grad=True
    )
    return results.pop()
