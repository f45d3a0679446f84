"""Lowerings of running sums, products and extremes along one dimension (scans), on GPUs; on the CPU, of running sums
along rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch

from ..ir.body import LoopBody, trace
from ..ir.buffer import Layout, contiguous_strides
from ..ir.handler import ops
from ..ir.nodes import BufferView, InnerFn, Pointwise, TensorValue, compute_dtype, dense_order
from ..ir.size import hint
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import derived, stored
from .registry import LoweringGraph, Unlowered, lowering

HALVES = (torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (*HALVES, torch.float32, torch.float64)
# From this length on, so few rows leave most of a GPU idle if one program finds the positions of a row's extremes.
LONG_ROW, FEW_ROWS = 1 << 15, 128
SHORT_ROW_CPU = 32  # of which vectors on the CPU take longer than ATen's loop


def _sums_rows(graph: LoweringGraph, x: TensorValue, dim: int) -> bool:
    """Whether the current node computes running sums, from the start, along rows of memory that are not short."""
    val, rank = graph.val, len(x.size)
    if graph.node.target is not torch.ops.aten.cumsum.default or val.dtype not in (*FLOATS, torch.int64) or not rank:
        return False
    if type(x.size[dim]) is not int or x.size[dim] < SHORT_ROW_CPU or _only_turned(graph, dim, rank):
        return False
    return val.stride()[dim] == 1 and dense_order(tuple(x.size), tuple(val.stride())) is not None


def _refuse(graph: LoweringGraph, x: TensorValue, val: AnyTensor, dim: int, positions: bool) -> None:
    """Unlowered unless a scan of `x` in loops, for values or for `positions`, is supported and fast."""
    if val.device.type == "cpu" and (positions or not _sums_rows(graph, x, dim)):
        raise Unlowered
    if x.dtype not in (*FLOATS, *INTEGERS, torch.bool) or val.dtype == torch.bool:
        raise Unlowered
    sizes = [hint(n) for n in x.size]
    if 0 in sizes:
        raise Unlowered
    if positions and sizes and sizes[dim] >= LONG_ROW and math.prod(sizes) // sizes[dim] < FEW_ROWS:
        raise Unlowered


def _scan(
    graph: LoweringGraph, x: TensorValue, dim: int, kind: str, fn: InnerFn, val: AnyTensor, reverse: bool = False
) -> BufferView:
    """A new buffer of the dtype and size of `val`: the scan of `fn` along `dim`, which has more than one element."""
    size, dtype = tuple(x.size), val.dtype
    order, stride = dense_order(size, tuple(val.stride())), tuple(val.stride())
    if order is None:
        order, stride = list(range(len(size))), contiguous_strides(size)
    layout = Layout(val.device, dtype, size, tuple(stride))
    outer = [d for d in order if d != dim]

    def body_of(name: str) -> LoopBody:
        def run(index: tuple[Index, ...], scanned: tuple[Index, ...]) -> None:
            full: list[Index] = [0] * len(size)
            for d, i in zip([*outer, dim], (*index, *scanned)):
                full[d] = i
            value = ops.scan(compute_dtype(dtype), kind, fn(tuple(full)), reverse)
            ops.store(name, layout.index(full), ops.to_dtype(value, dtype))

        return trace([size[d] for d in outer], [size[dim]], run)

    return BufferView(graph.add_computed(layout, body_of), layout)


def _turned(x: TensorValue, dim: int) -> Pointwise:
    """`x` reversed along `dim`."""

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return x.load([x.size[d] - 1 - i if d == dim else i for d, i in enumerate(index)])

    return Pointwise(x.device, x.dtype, tuple(x.size), inner_fn, x.reads, x.work)


def _only_turned(graph: LoweringGraph, dim: int, rank: int) -> bool:
    """Whether all users of the current node reverse it along `dim`, as the gradient of a cumulative sum does."""
    flip = torch.ops.aten.flip.default
    flipped = [cast("list[int]", user.args[1]) for user in graph.node.users if user.target is flip]
    return 0 < len(flipped) == len(graph.node.users) and all([d % rank for d in dims] == [dim] for dims in flipped)


def _running(graph: LoweringGraph, x: TensorValue, dim: int, kind: str) -> TensorValue:
    """The scan of the elements, converted to the dtype of the result."""
    val, rank = graph.val, len(x.size)
    dim = dim % rank if rank else 0
    _refuse(graph, x, val, dim, positions=False)
    if x.dtype != val.dtype:
        x = stored(derived(x, lambda v: ops.to_dtype(v, compute_dtype(val.dtype)), val.dtype, 0))
    if not rank or (type(x.size[dim]) is int and x.size[dim] == 1):
        return derived(x, lambda v: v, val.dtype, 0)
    if _only_turned(graph, dim, rank):  # the scan runs from the end, at the positions of the reversed result
        return _turned(_scan(graph, x, dim, kind, _turned(x, dim).load, val, reverse=True), dim)
    return _scan(graph, x, dim, kind, x.load, val)


@lowering("cumsum")
def cumsum(graph: LoweringGraph, x: TensorValue, dim: int, *, dtype: Any = None) -> TensorValue:
    """The running sum."""
    return _running(graph, x, dim, "sum")


@lowering("cumprod")
def cumprod(graph: LoweringGraph, x: TensorValue, dim: int, *, dtype: Any = None) -> TensorValue:
    """The running product."""
    return _running(graph, x, dim, "prod")


@lowering("logcumsumexp")
def logcumsumexp(graph: LoweringGraph, x: TensorValue, dim: int) -> TensorValue:
    """The logarithm of the running sum of exponentials."""
    if x.dtype not in FLOATS:
        raise Unlowered
    return _running(graph, x, dim, "logsumexp")


def _extreme(kind: str) -> Callable[..., tuple[TensorValue, TensorValue]]:
    def lower(graph: LoweringGraph, x: TensorValue, dim: int) -> tuple[TensorValue, TensorValue]:
        values, positions = graph.val
        rank = len(x.size)
        dim = dim % rank if rank else 0
        _refuse(graph, x, values, dim, positions=True)
        x = stored(x)
        if not rank or (type(x.size[dim]) is int and x.size[dim] == 1):
            zero = Pointwise(
                x.device, torch.int64, tuple(x.size), lambda index: ops.constant(0, torch.int64),
                stride=tuple(positions.stride()),
            )  # fmt: skip
            return derived(x, lambda v: v, x.dtype, 0), zero
        return (
            _scan(graph, x, dim, kind, x.load, values),
            _scan(graph, x, dim, f"arg{kind}", x.load, positions),
        )

    return lower


lowering("cummax")(_extreme("max"))
lowering("cummin")(_extreme("min"))
