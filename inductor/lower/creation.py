"""Lowerings of operators whose elements are constants or depend on the position: full, arange, tril, padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.real import Real
from ..ir.size import Size
from ..ir.symbolic import Index
from .common import overflows, pointwise, wrapped
from .registry import LoweringGraph, Unlowered, lowering


def _indexed(graph: LoweringGraph, fn: Callable[[tuple[Index, ...]], Any]) -> Pointwise:
    """A tensor of the node's size and dtype whose element at `index` is fn(index)."""
    val = graph.val
    if val.dtype.is_complex:
        raise Unlowered
    dtype = compute_dtype(val.dtype)
    size, stride = tuple(val.shape), tuple(val.stride())
    return Pointwise(val.device, val.dtype, size, lambda i: ops.to_dtype(fn(i), dtype), work=1, stride=stride)


def _filled(graph: LoweringGraph, value: Any) -> Pointwise:
    if not isinstance(value, int | float | Size | Real) or overflows(value, graph.val.dtype):
        raise Unlowered
    dtype = compute_dtype(graph.val.dtype)
    number = wrapped(value, dtype)
    return _indexed(graph, lambda index: ops.constant(number, dtype))


@lowering("full", "full_like", "new_full")
def full(graph: LoweringGraph, like: Any, *args: Any, **kwargs: Any) -> TensorValue:
    """One value everywhere."""
    return _filled(graph, kwargs["fill_value"] if "fill_value" in kwargs else args[-1])


@lowering("scalar_tensor")
def scalar_tensor(graph: LoweringGraph, value: Any, **kwargs: Any) -> TensorValue:
    """A tensor without dimensions."""
    return _filled(graph, value)


@lowering("zeros", "zeros_like", "new_zeros")
def zeros(graph: LoweringGraph, like: Any, *args: Any, **kwargs: Any) -> TensorValue:
    """0 everywhere."""
    return _filled(graph, 0)


@lowering("empty", "empty_like", "new_empty")
def empty(graph: LoweringGraph, like: Any, *args: Any, **kwargs: Any) -> TensorValue:
    """0 everywhere, as the contents are arbitrary; with deterministic algorithms what eager fills the memory with."""
    fills: bool = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    if not (fills and torch.are_deterministic_algorithms_enabled()):
        return _filled(graph, 0)
    dtype = graph.val.dtype
    if dtype == torch.bool:
        return _filled(graph, True)
    return _filled(graph, math.nan if dtype.is_floating_point else torch.iinfo(dtype).max)


@lowering("ones", "ones_like", "new_ones")
def ones(graph: LoweringGraph, like: Any, *args: Any, **kwargs: Any) -> TensorValue:
    """1 everywhere."""
    return _filled(graph, 1)


@lowering("fill")
def fill(graph: LoweringGraph, x: TensorValue, value: Any) -> TensorValue:
    """One value everywhere, in x's size and dtype."""
    if isinstance(value, int | float | Size | Real):
        return _filled(graph, value)
    if value.size:  # eager raises; fake tensors up to torch 2.11 do not
        raise Unlowered
    return pointwise(lambda v: v, (value,), compute_dtype(graph.val.dtype), graph.val)


@lowering("arange")
def arange(graph: LoweringGraph, *args: Any, **kwargs: Any) -> TensorValue:
    """start + i * step."""
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else kwargs.get("step", 1))
    if type(start) in (int, Size) and type(step) in (int, Size):
        return _indexed(graph, lambda i: ops.index_expr(i[0] * step + start, torch.int64))
    wide = torch.float64
    return _indexed(
        graph,
        lambda i: ops.add(ops.constant(start, wide), ops.mul(ops.index_expr(i[0], wide), ops.constant(step, wide))),
    )


def _offset(index: tuple[Index, ...]) -> Any:
    """The column minus the row of an element in the last two dimensions."""
    return ops.index_expr(index[-1] - index[-2], torch.int64)


@lowering("tril")
def tril(graph: LoweringGraph, x: TensorValue, diagonal: int = 0) -> TensorValue:
    """x on and below a diagonal, else 0."""
    return _triangle(graph, x, lambda index: ops.le(_offset(index), ops.constant(diagonal, torch.int64)))


@lowering("triu")
def triu(graph: LoweringGraph, x: TensorValue, diagonal: int = 0) -> TensorValue:
    """x on and above a diagonal, else 0."""
    return _triangle(graph, x, lambda index: ops.ge(_offset(index), ops.constant(diagonal, torch.int64)))


def _triangle(graph: LoweringGraph, x: TensorValue, keep: Callable[[tuple[Index, ...]], Any]) -> TensorValue:
    dtype = compute_dtype(x.dtype)
    out = _indexed(graph, lambda i: ops.where(keep(i), x.load(i), ops.constant(0, dtype)))
    out.reads, out.work = x.reads, x.work + 2
    return out


@lowering("eye")
def eye(graph: LoweringGraph, *args: Any, **kwargs: Any) -> TensorValue:
    """1 on the main diagonal, else 0."""
    dtype = compute_dtype(graph.val.dtype)
    return _indexed(
        graph,
        lambda i: ops.where(
            ops.eq(_offset(i), ops.constant(0, torch.int64)), ops.constant(1, dtype), ops.constant(0, dtype)
        ),
    )


@lowering("constant_pad_nd")
def constant_pad_nd(graph: LoweringGraph, x: TensorValue, pad: list[int], value: Any = 0) -> TensorValue:
    """x padded with `value`. `pad` lists (before, after) starting with the last dimension; negative amounts crop."""
    if overflows(value, graph.val.dtype):
        raise Unlowered  # ATen raises the error
    before = [0] * len(x.size)
    for k in range(len(pad) // 2):
        before[len(x.size) - 1 - k] = pad[2 * k]

    def inner_fn(index: tuple[Index, ...]) -> Any:
        own = [i - b for i, b in zip(index, before)]
        mask = None
        for i, n, out, b in zip(own, x.size, graph_size, before):
            tests = []
            if b > 0:
                tests.append(ops.ge(ops.index_expr(i, torch.int64), ops.constant(0, torch.int64)))
            if out - b > n:
                tests.append(ops.lt(ops.index_expr(i, torch.int64), ops.constant(n, torch.int64)))
            for test in tests:
                mask = test if mask is None else ops.logical_and(mask, test)
        return x.load(own) if mask is None else ops.masked(mask, lambda: x.load(own), value)

    graph_size = tuple(graph.val.shape)
    out = _indexed(graph, inner_fn)
    out.reads, out.work = x.reads, x.work + 4
    return out
