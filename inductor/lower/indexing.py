"""Lowerings of operators that read elements at positions given by an index tensor: embedding, gather, `x[indices]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue
from ..ir.size import AnySize
from ..ir.symbolic import Index
from .common import operand
from .registry import LoweringGraph, Unlowered, lowering


def _gathered(graph: LoweringGraph, x: TensorValue, inner_fn: Any, indices: Sequence[TensorValue]) -> Pointwise:
    """The result of reading elements of `x`. Unlowered if `x` has no elements: a kernel replaces an index that is out
    of bounds by 0 before the error is reported, and here even element 0 does not exist."""
    if any(type(n) is int and n == 0 for n in x.size):
        raise Unlowered
    return Pointwise(
        x.device,
        x.dtype,
        tuple(graph.val.shape),
        inner_fn,
        x.reads + sum(i.reads for i in indices),
        x.work + sum(i.work for i in indices) + 2,
        tuple(graph.val.stride()),
    )


def _read(x: TensorValue, index: Sequence[Index], at: Mapping[int, Any]) -> Any:
    """The element of `x` at `index`, where the dimensions in `at` use the integer values given there. Negative values
    count from the end."""
    own = list(index)
    for d, value in at.items():
        own[d] = ops.indirect(value, x.size[d])
    element = x.load(own)
    for d, value in at.items():
        element = ops.checked(element, value, x.size[d])
    return element


def from_start(value: Any, size: AnySize) -> Any:
    """An index value as int64 with negative values replaced by `size`, since they are out of bounds here."""
    value = ops.to_dtype(value, torch.int64)
    negative = ops.lt(value, ops.constant(0, torch.int64))
    return ops.where(negative, ops.constant(size, torch.int64), value)


@lowering("embedding")
def embedding(
    graph: LoweringGraph,
    weight: TensorValue,
    indices: TensorValue,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorValue:
    """Rows of a table."""
    if indices.dtype not in (torch.int64, torch.int32):  # eager raises; fake tensors up to torch 2.11 do not
        raise Unlowered
    rank = len(indices.size)
    rows = weight.size[0]
    return _gathered(
        graph, weight, lambda i: _read(weight, [0, i[-1]], {0: from_start(indices.load(i[:rank]), rows)}), [indices]
    )


@lowering("index_select")
def index_select(graph: LoweringGraph, x: TensorValue, dim: int, indices: TensorValue) -> TensorValue:
    """The positions `indices` of one dimension."""
    if not x.size or len(indices.size) != 1 or indices.dtype not in (torch.int64, torch.int32):
        raise Unlowered
    dim %= len(x.size)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return _read(x, index, {dim: from_start(indices.load([index[dim]]), x.size[dim])})

    return _gathered(graph, x, inner_fn, [indices])


@lowering("gather")
def gather(
    graph: LoweringGraph, x: TensorValue, dim: int, indices: TensorValue, *, sparse_grad: bool = False
) -> TensorValue:
    """For each element of `indices`, the element of `x` at that position along one dimension."""
    if not x.size or not indices.size:
        raise Unlowered
    dim %= len(x.size)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return _read(x, index, {dim: from_start(indices.load(index), x.size[dim])})

    return _gathered(graph, x, inner_fn, [indices])


def broadcast(sizes: Sequence[tuple[AnySize, ...]]) -> tuple[AnySize, ...]:
    """The broadcast size of tensors that are known to be broadcastable."""
    rank = max(map(len, sizes))
    shape: list[AnySize] = [1] * rank
    for size in sizes:
        for d, n in enumerate(size, rank - len(size)):
            if n != 1:
                shape[d] = n
    return tuple(shape)


@lowering("index", "_unsafe_index")
def index(graph: LoweringGraph, x: TensorValue, indices: Sequence[TensorValue | None]) -> TensorValue:
    """x[indices]; each index is an integer tensor, or None for a whole dimension."""
    used = [d for d, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    if not used or any(i.dtype in (torch.bool, torch.uint8) for i in tensors):
        raise Unlowered
    shape = broadcast([tuple(i.size) for i in tensors])
    # The dimensions of the indices replace the indexed ones if those are adjacent; otherwise they come first.
    first = used[0] if used == list(range(used[0], used[-1] + 1)) else 0
    loads = {d: operand(indices[d], torch.int64, len(shape)) for d in used}

    def inner_fn(at: tuple[Index, ...]) -> Any:
        inner = at[first : first + len(shape)]
        rest = list(at[:first] + at[first + len(shape) :])
        own: list[Index] = [0 if d in loads else rest.pop(0) for d in range(len(x.size))]
        return _read(x, own, {d: ops.to_dtype(load(inner), torch.int64) for d, load in loads.items()})

    return _gathered(graph, x, inner_fn, tensors)
