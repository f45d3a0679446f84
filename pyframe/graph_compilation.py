"""Calls the backend with a captured graph, and wraps what it returns for the entry."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _C
from .backends import Backend, takes_fake_tensors
from .emit.constant_eval import only_views
from .emit.function_names import place
from .emit.graph import GraphBuilder
from .emit.resume import Continuation
from .errors import BackendCompilerFailed, PyframeError
from .example_inputs import real_examples
from .interp.trace import Trace
from .vars.torch_objects.overrides import modes_around

_FEW = 2  # that many operators on 0-d tensors cost no more than a graph call with its guards


def compiled_by(backend: Backend, name: str, trace: Trace, gm: torch.fx.GraphModule) -> Any:
    """The graph of a trace, compiled by the backend of this name, as entries call it. BackendCompilerFailed if the
    backend raises, or returns what is not callable."""
    graph, where = trace.graph, place(trace.func)
    try:
        with _without_modes(), torch._C._EnableTorchFunction():
            if takes_fake_tensors(backend):
                compiled = backend(gm, graph.inputs.examples_before_run(graph.fake_mode))
            else:
                with real_examples(graph, gm) as examples:
                    compiled = backend(gm, examples)
    except (PyframeError, MemoryError):  # the program may handle a MemoryError
        raise
    except Exception as error:
        raise BackendCompilerFailed(
            f"backend {name!r} raised {type(error).__name__} for a graph of {where}: {error}", error
        ) from error
    if not callable(compiled):
        raise BackendCompilerFailed(
            f"backend {name!r} returned {compiled!r} for a graph of {where}, which is not callable"
        )
    return as_called(compiled, graph)


def too_small(graph: torch.fx.Graph, known: Continuation | None) -> bool:
    """Whether a graph between breaks is not worth compiling: it consists of views only, or runs once per loop iteration
    and computes at most two 0-d tensors, which costs no more than the call of a graph."""
    if only_views(graph):
        return True
    if known is None or not known.loops:
        return False
    results = [node.meta.get("val") for node in graph.nodes if node.op in ("call_function", "call_method")]
    return len(results) <= _FEW and all(isinstance(value, torch.Tensor) and value.dim() == 0 for value in results)


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    """Temporarily removes the program's own `__torch_function__` modes."""
    modes = modes_around()
    for _ in modes:
        torch._C._pop_torch_function_stack()
    try:
        yield
    finally:
        for mode in modes:
            torch._C._push_on_torch_function_stack(mode)


def as_called(compiled: Callable[..., Any], graph: GraphBuilder) -> Any:
    """The compiled graph as entries call it: with the frame hook disabled, and returning a tuple."""
    call = _unseen(compiled, graph)
    return call if getattr(call, "returns_tuple", False) else _C.run_disabled(call)


def _unseen(compiled: Callable[..., Any], graph: GraphBuilder) -> Callable[..., Any]:
    """Wraps the compiled graph so that modes and the classes of its inputs do not override its calls: their overrides
    were already traced."""
    around = graph.tx.overrides.modes_at_entry
    if not around and not graph.inputs.takes_subclasses():
        return compiled
    disabled = torch._C.DisableTorchFunction if around else torch._C.DisableTorchFunctionSubclass

    def call(*inputs: Any) -> Any:
        with disabled():
            return compiled(*inputs)

    return call
