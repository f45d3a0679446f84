"""Graphs with the option `freezing`: which of their inputs are constants, and the callable that computes these."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn

from .aot.fake import fake_mode
from .aot.functionalize import attributes_of
from .artifact import Artifact
from .options import CompileOptions
from .process.import_stubs import stub_torch_compiler
from .runtime.fold import FoldedTensors, FrozenCall

PARAMETER = "parameter"  # in the metadata of a placeholder: whether it is a parameter or a buffer of a module


def frozen_inputs(gm: fx.GraphModule, inputs: Sequence[Any], options: CompileOptions) -> tuple[int, ...]:
    """The positions, among the inputs and then the attributes of a graph, of those that are constants: parameters and
    buffers, if all tensors are on the CPU. Inference tensors are not, as nothing counts the writes to them, nor are
    buffers that are not contiguous, whose memory is not compared."""
    if not options.freezing:
        return ()
    given = [*inputs, *(value for _, value in attributes_of(gm))]
    if any(isinstance(x, torch.Tensor) and x.device.type != "cpu" for x in given):
        return ()
    marked = [node.meta.get(PARAMETER, False) for node in gm.graph.find_nodes(op="placeholder")]
    marked += [True] * (len(given) - len(marked))
    return tuple(
        i for i, (x, mark) in enumerate(zip(given, marked, strict=True))
        if isinstance(x, nn.Parameter) and not x.is_inference()
        or mark and isinstance(x, torch.Tensor) and not x.is_inference() and x.is_contiguous()
    )  # fmt: skip


def without_freezing(options: CompileOptions) -> CompileOptions:
    """The same options for a graph that computes everything at each call."""
    return dataclasses.replace(options, freezing=False)


def described(inputs: Sequence[Any]) -> list[Any]:
    """Fake tensors like these inputs, for a later compilation; they keep no memory alive."""
    mode = fake_mode()
    with stub_torch_compiler:
        return [mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x for x in inputs]


def folded_of(gm: fx.GraphModule, artifact: Artifact) -> FoldedTensors | None:
    """The constants of a graph; None if it has none."""
    if artifact.fold is None:
        return None
    return FoldedTensors(artifact.fold, [value for _, value in attributes_of(gm)])


def with_constants(
    folded: FoldedTensors | None, make: Callable[..., Callable[..., Any]], unfrozen: Callable[[], Callable[..., Any]]
) -> Callable[..., Any]:
    """The callable of a graph. `make(constants=...)` returns its plan for certain constants."""
    if folded is None:
        return make()
    return FrozenCall(folded, lambda constants: make(constants=constants), unfrozen)
