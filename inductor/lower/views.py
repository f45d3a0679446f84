"""Lowerings of views and other operators that only rearrange elements, and of `cat` and `stack`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ..errors import Unsupported
from ..fx_utils.views import OF_ALL_ELEMENTS, operator_name
from ..ir.buffer import Layout, contiguous_strides
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, store_interleaved
from ..ir.size import AnySize, Size, quotient
from ..ir.symbolic import Index
from .common import drop, view_of, with_dims
from .registry import LoweringGraph, Unlowered, find, lowering


def view_strides(size: Sequence[int], stride: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of a view of size `new` of memory with this size and stride, or None if there is no such view."""
    if math.prod(size) == 0:
        return contiguous_strides(new)
    # Maximal runs of dimensions that are row-major among themselves, innermost first: [elements, innermost stride].
    runs: list[list[int]] = []
    for n, s in reversed([(n, s) for n, s in zip(size, stride) if n != 1]):
        if runs and s == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= n
        else:
            runs.append([n, s])
    out: list[int] = []
    left: AnySize
    left, step = runs.pop(0) if runs else [1, 1]
    for n in reversed(new):
        if n != 1 and left == 1 and runs:
            left, step = runs.pop(0)
        rest = quotient(left, n) if left != n else 1
        if rest is None:
            return None
        out.append(step)
        left, step = rest, step * n
    return tuple(reversed(out))


@lowering("view", "reshape", "_unsafe_view", "_reshape_alias")
def view(graph: LoweringGraph, x: TensorValue, *args: Any) -> TensorValue:
    """x viewed as another size, with elements in row-major order. Unlowered for a view as another dtype."""
    if graph.val.dtype != x.dtype:
        raise Unlowered
    return reshaped(x, tuple(graph.val.shape))


def reshaped(x: TensorValue, new: tuple[int, ...]) -> TensorValue:
    """x with size `new`, with elements in row-major order."""
    old = tuple(x.size)
    if old == new:
        return x
    old_strides, new_strides = contiguous_strides(old), contiguous_strides(new)
    empty = any(n == 0 for n in old)  # there is no element to compute an index for

    def reindex(index: tuple[Index, ...]) -> list[Index]:
        if empty:
            return [0] * len(old)
        flat: Index = 0
        for i, s in zip(index, new_strides):
            flat = flat + i * s
        return [0 if n == 1 else (flat // s) % n for n, s in zip(old, old_strides)]

    def relayout(at: Layout) -> Layout | None:
        stride = view_strides(at.size, at.stride, new)
        return None if stride is None else at.with_view(new, stride)

    return view_of(x, new, reindex, relayout)


def permuted(x: TensorValue, dims: Sequence[int]) -> TensorValue:
    """x with its dimensions in this order."""
    dims = [d % len(x.size) for d in dims]
    return x if dims == sorted(dims) else with_dims(x, dims)


@lowering("permute")
def permute(graph: LoweringGraph, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    """x with its dimensions in this order."""
    return permuted(x, dims)


@lowering("transpose")
def transpose(graph: LoweringGraph, x: TensorValue, a: int, b: int) -> TensorValue:
    """x with two dimensions exchanged."""
    dims = list(range(len(x.size)))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return permuted(x, dims)


@lowering("t")
def t(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """The transpose of a matrix."""
    return permuted(x, range(len(x.size) - 1, -1, -1))


@lowering("unsqueeze", "squeeze")
def unsqueeze(graph: LoweringGraph, x: TensorValue, *args: Any) -> TensorValue:
    """x with dimensions of size 1 added or removed."""
    return reshaped(x, tuple(graph.val.shape))


@lowering("expand")
def expand(graph: LoweringGraph, x: TensorValue, size: Sequence[int], *, implicit: bool = False) -> TensorValue:
    """x broadcast along dimensions of size 1 and along new leading dimensions."""
    new, old = tuple(graph.val.shape), tuple(x.size)
    if new == old:
        return x
    pad = len(new) - len(old)

    def relayout(at: Layout) -> Layout:
        stride = [0 if n == 1 and m != 1 else s for n, m, s in zip(at.size, new[pad:], at.stride)]
        return at.with_view(new, [0] * pad + stride)

    return view_of(x, new, lambda index: [0 if n == 1 else i for n, i in zip(old, index[pad:])], relayout)


def sliced(x: TensorValue, dim: int, start: int, length: int, step: int = 1) -> TensorValue:
    """Elements start, start + step ... of one dimension, `length` of them."""
    if start == 0 and step == 1 and length == x.size[dim]:
        return x

    def reindex(index: tuple[Index, ...]) -> list[Index]:
        out = list(index)
        out[dim] = index[dim] * step + start
        return out

    def relayout(at: Layout) -> Layout:
        stride = [s * step if d == dim else s for d, s in enumerate(at.stride)]
        size = [length if d == dim else n for d, n in enumerate(at.size)]
        return at.with_view(size, stride, at.offset + start * at.stride[dim])

    return view_of(x, [length if d == dim else n for d, n in enumerate(x.size)], reindex, relayout)


def first_of_slice(start: int | None, size: int) -> int:
    """The first position of `x[start:...]` along a dimension of `size`, as Python's slices count."""
    first = start or 0
    if first < 0:
        first = first + size
    return 0 if first < 0 else size if first > size else first


@lowering("slice")
def slice_(
    graph: LoweringGraph, x: TensorValue, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> TensorValue:
    """x[start:end:step] along one dimension."""
    dim %= len(x.size)
    length, size = graph.val.shape[dim], x.size[dim]
    first = first_of_slice(start, size)
    return sliced(x, dim, first, length, step)


@lowering("select")
def select(graph: LoweringGraph, x: TensorValue, dim: int, index: int) -> TensorValue:
    """One position of one dimension."""
    if not isinstance(index, int | Size):
        raise Unlowered
    dim %= len(x.size)
    return drop(sliced(x, dim, index % x.size[dim], 1), [dim])


@lowering("split", "split_with_sizes", "chunk")
def split(graph: LoweringGraph, x: TensorValue, sizes: Any, dim: int = 0) -> tuple[TensorValue, ...]:
    """Consecutive parts of one dimension."""
    dim %= len(x.size)
    parts, start = [], 0
    for val in graph.val:
        parts.append(sliced(x, dim, start, val.shape[dim]))
        start += val.shape[dim]
    return tuple(parts)


@lowering("unbind")
def unbind(graph: LoweringGraph, x: TensorValue, dim: int = 0) -> tuple[TensorValue, ...]:
    """Each position of one dimension."""
    dim %= len(x.size)
    return tuple(drop(sliced(x, dim, k, 1), [dim]) for k in range(x.size[dim]))


@lowering("alias", "detach", "lift_fresh", "lift")
def alias(graph: LoweringGraph, x: TensorValue) -> TensorValue:
    """x itself."""
    return x


@lowering("contiguous")
def contiguous(graph: LoweringGraph, x: TensorValue, *, memory_format: Any = None) -> TensorValue:
    """x in row-major memory."""
    return Pointwise(x.device, x.dtype, tuple(x.size), x.load, x.reads, x.work, stride=tuple(graph.val.stride()))


@lowering("as_strided")
def as_strided(
    graph: LoweringGraph, x: TensorValue, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> TensorValue:
    """An arbitrary view of x's memory, with the sizes and strides of the fake result."""
    return graph.strided_view()


@lowering("as_strided_scatter")
def as_strided_scatter(graph: LoweringGraph, x: TensorValue, *rest: Any) -> TensorValue:
    """Always Unsupported. Contiguous cases are decomposed before lowering; in the others ATen's kernel counts the
    offset from the start of a storage, which is not known here."""
    raise Unsupported("as_strided_scatter into a tensor that is not contiguous")


@lowering("flip")
def flip(graph: LoweringGraph, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    """x reversed along some dimensions."""
    turned = {d % len(x.size) for d in dims} if x.size else set()

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return x.load([n - 1 - i if d in turned else i for d, (i, n) in enumerate(zip(index, x.size))])

    return Pointwise(x.device, x.dtype, tuple(x.size), inner_fn, x.reads, x.work + 1, tuple(graph.val.stride()))


@lowering("roll")
def roll(graph: LoweringGraph, x: TensorValue, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorValue:
    """x shifted cyclically along some dimensions."""
    if not dims or 0 in x.size:
        raise Unlowered
    by = dict.fromkeys(range(len(x.size)), 0)
    for shift, dim in zip(shifts, dims):
        by[dim % len(x.size)] += shift

    def inner_fn(index: tuple[Index, ...]) -> Any:
        return x.load([(i + -by[d] % n) % n for d, (i, n) in enumerate(zip(index, x.size))])

    return Pointwise(x.device, x.dtype, tuple(x.size), inner_fn, x.reads, x.work + 1, tuple(graph.val.stride()))


@lowering("repeat")
def repeat(graph: LoweringGraph, x: TensorValue, repeats: Sequence[int]) -> TensorValue:
    """x tiled `repeats` times along each dimension."""
    size = tuple(graph.val.shape)
    pad = len(size) - len(x.size)
    return Pointwise(
        x.device,
        x.dtype,
        size,
        lambda index: x.load([0 if n <= 1 else i % n for i, n in zip(index[pad:], x.size)]),
        x.reads,
        x.work,
    )


# With more parts, ATen's copies are cheaper than selecting a part at each element.
MAX_PARTS = 4
# On a GPU, a result of at most SMALL elements may have more parts: otherwise each part would need its own kernel.
MAX_SMALL_PARTS, SMALL = 24, 1 << 18
# On the CPU, of a copy of parts in memory: elements of the result, and of a row of a part.
SMALL_COPY, MIN_COPIED_ROW = 1 << 16, 8
PAIR = 2
# Operators that have lowerings, but are mostly calls of ATen.
_NOT_LOOPS = ("mm", "bmm", "addmm", "convolution", "convolution_backward", "sort", "topk")


@lowering("cat")
def cat(graph: LoweringGraph, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    """Tensors concatenated along one dimension. Unlowered for many parts, or if all parts are in memory already, unless
    the loops of its only reader, on a GPU, can select the parts: then they are not copied; or on the CPU, where to copy
    a few short parts takes less time than a call of ATen."""
    out = graph.val
    parts = [x for x in tensors if tuple(x.size) != (0,)]
    if not parts:
        raise Unlowered
    memory = all(isinstance(x, BufferView) for x in parts)
    memory = memory and not (out.device.type == "cuda" and _read_by_one_loop(graph.node))
    memory = memory and not (out.device.type == "cpu" and _is_small_copy(parts, dim))
    most = MAX_SMALL_PARTS if out.device.type == "cuda" and out.numel() <= SMALL else MAX_PARTS
    if len(parts) > most or memory or any(x.dtype != out.dtype for x in parts):
        raise Unlowered
    dim %= out.dim()
    ends = [0]
    for x in parts:
        ends.append(ends[-1] + x.size[dim])

    def inner_fn(index: tuple[Index, ...]) -> Any:
        where = ops.index_expr(index[dim], torch.int64)
        result = None
        for k in range(len(parts) - 1, -1, -1):
            own = [i - ends[k] if d == dim else i for d, i in enumerate(index)]
            own = [0 if n == 1 else i for i, n in zip(own, parts[k].size)]
            mask = ops.lt(where, ops.constant(ends[k + 1], torch.int64))
            inside = mask
            if k:
                inside = ops.logical_and(ops.ge(where, ops.constant(ends[k], torch.int64)), mask)
            value = ops.masked(inside, lambda k=k, own=own: parts[k].load(own), 0)
            result = value if result is None else ops.where(mask, value, result)
        return result

    return Pointwise(
        out.device,
        out.dtype,
        tuple(out.shape),
        inner_fn,
        max(x.reads for x in parts) + len(parts),
        sum(x.work for x in parts) + 3 * len(parts),
        tuple(out.stride()),
    )


def _is_small_copy(parts: Sequence[TensorValue], dim: int) -> bool:
    """Whether loops copy parts in memory in less time than a call of ATen takes on the CPU, in vectors of the rows of
    each."""
    sizes = [tuple(x.size) for x in parts]
    if any(type(n) is not int for size in sizes for n in size):
        return False
    rows = [math.prod(size[dim:] if dim >= 0 else size[len(size) + dim :]) for size in sizes]
    return min(rows) >= MIN_COPIED_ROW and sum(math.prod(size) for size in sizes) <= SMALL_COPY


def _read_by_one_loop(node: fx.Node) -> bool:
    """Whether a result has one reader, directly or through views, and loops compute that."""
    while len(node.users) == 1:
        (node,) = node.users
        name = operator_name(node)
        if name not in OF_ALL_ELEMENTS:
            return find(node.target) is not None and name not in _NOT_LOOPS
    return False


def _are_pairs(graph: LoweringGraph, tensors: Sequence[TensorValue]) -> bool:
    """Whether these are two values of the result's dtype on the CPU."""
    val = graph.val
    alike = all(x.dtype == val.dtype and tuple(x.size) == tuple(val.shape[:-1]) for x in tensors)
    return len(tensors) == PAIR and alike and val.device.type == "cpu" and 0 not in tuple(val.shape)


@lowering("stack")
def stack(graph: LoweringGraph, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    """Tensors along a new dimension. Two along the last are interleaved in memory on the CPU: loops over pairs are
    vectorized, loops over single elements and ATen's copies are not."""
    dim %= graph.val.dim()
    if dim == graph.val.dim() - 1 and _are_pairs(graph, tensors):
        return store_interleaved(graph, tensors)
    wide = [reshaped(x, tuple(x.size[:dim]) + (1,) + tuple(x.size[dim:])) for x in tensors]
    return cat(graph, wide, dim)
