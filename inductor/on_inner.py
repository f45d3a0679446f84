"""Graphs on traceable wrapper subclasses, compiled as graphs on their inner tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from .aot.inner import finishing, to_inner
from .wrapper_tensors import flattening

CompileFlat = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def compile_inference(gm: fx.GraphModule, inputs: Sequence[Any], compile_flat: CompileFlat) -> Callable[..., Any]:
    """A callable that does what `gm` does on inputs like these, without gradients; `compile_flat(graph, inputs)`
    compiles a graph of plain tensors that returns a tuple."""
    inner = to_inner(gm, inputs)
    flatten = flattening(inner.forms)
    run = without_autocast(lambda: compile_flat(inner.graph, flatten(inputs)))
    finish = finishing(inner)

    def call(*args: Any) -> Any:
        return finish(args, run(*flatten(args)))

    return call


def without_autocast(compile_flat: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """What `compile_flat` gives, compiled and called without autocast: the casts are in the graph already, and inside
    of `__torch_dispatch__` there are none."""
    if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
        return compile_flat()
    with torch._C._DisableAutocast():
        compiled = compile_flat()

    def call(*args: Any) -> Any:
        with torch._C._DisableAutocast():
            return compiled(*args)

    return call
