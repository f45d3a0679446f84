"""The tensor values that lowerings take and return: `Pointwise`, a computation that has no memory yet, and
`BufferView`, a strided view of a buffer.

The ops of the loop IR see the elements of a value in `compute_dtype(value.dtype)`: float16 and bfloat16 are computed in
float32 and rounded when they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
import torch.fx as fx

from .body import LoopBody, trace
from .buffer import Buffer, ComputedBuffer, Layout, contiguous_strides
from .handler import ops
from .symbolic import Index

InnerFn: TypeAlias = Callable[[tuple[Index, ...]], Any]


class Allocator(Protocol):
    """The part of a graph's interface that `realize` needs."""

    def add_computed(self, layout: Layout, body_of: Callable[[str], LoopBody]) -> ComputedBuffer:
        """Appends to the graph a new buffer that `body_of(its name)` fills, and returns it."""
        ...


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a value of `dtype` is computed."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@dataclass(eq=False)
class BufferView:
    """A tensor in memory: the elements of `buffer` that `layout` addresses."""

    buffer: Buffer
    layout: Layout

    device = property(lambda self: self.layout.device)
    dtype = property(lambda self: self.layout.dtype)
    size = property(lambda self: self.layout.size)
    reads = 1
    work = 0

    def load(self, index: Sequence[Index]) -> Any:
        """Emits a load of the element at `index` and its conversion to the compute dtype."""
        value = ops.load(self.buffer.name, self.layout.index(index), self.layout.dtype)
        return ops.to_dtype(value, compute_dtype(self.layout.dtype))

    def loader(self) -> InnerFn:
        """`load`, as a function."""
        return self.load

    def realize(self, graph: Allocator) -> BufferView:
        """Returns itself, since it is in memory."""
        return self


@dataclass(eq=False)
class Pointwise:
    """A pointwise computation: `inner_fn(index)` is the element, in the compute dtype of `dtype`.

    `reads` and `work` estimate the loads and the arithmetic per element. `stride` are the preferred strides of its
    memory, if it is realized. `padded`, if set, is the length to which its rows are filled up with zeros in memory. If
    the value is a view, `view` is the value it views and a function from that value's layout to the view's (None if the
    view has no strided layout). `memory` is set once the value is realized. `depth` is the number of operators between
    the value and memory.
    """

    device: torch.device
    dtype: torch.dtype
    size: tuple[int, ...]
    inner_fn: InnerFn
    reads: int = 0
    work: int = 0
    stride: tuple[int, ...] | None = None
    view: tuple[TensorValue, Callable[[Layout], Layout | None]] | None = None
    memory: BufferView | None = None
    depth: int = 0
    padded: int | None = None

    def load(self, index: Sequence[Index]) -> Any:
        """The element in the compute dtype: loaded from memory if the value has been realized, otherwise computed."""
        return self.memory.load(index) if self.memory is not None else self.inner_fn(tuple(index))

    def loader(self) -> InnerFn:
        """`load`, as a function. When it is traced, it checks whether the value has been realized in the meantime."""
        return self.load

    def realize(self, graph: Allocator) -> BufferView:
        """The value in memory: a strided view of the value that it views if possible, otherwise a new buffer."""
        if self.memory is None:
            self.memory = self._as_view(graph)
        if self.memory is None and self.padded is not None:
            self.memory = store_padded(graph, self, (*self.size[:-1], self.padded))
        if self.memory is None:
            self.memory = store(graph, self, self.stride)
        return self.memory

    def _as_view(self, graph: Allocator) -> BufferView | None:
        if self.view is None:
            return None
        base, relayout = self.view
        if isinstance(base, Pointwise) and base.memory is None and math.prod(base.size) > math.prod(self.size):
            return None  # computing the viewed part is cheaper than storing the whole base
        memory = base.realize(graph)
        layout = relayout(memory.layout)
        return None if layout is None else BufferView(memory.buffer, layout)


TensorValue: TypeAlias = Pointwise | BufferView


def dense_order(size: Sequence[int], stride: Sequence[int] | None) -> list[int] | None:
    """Dimensions from outermost to innermost if the strides are a permutation of row-major strides, else None."""
    if stride is None or len(stride) != len(size):
        return None
    kept = sorted((d for d in range(len(size)) if size[d] != 1), key=lambda d: -stride[d])
    expected = 1
    for d in reversed(kept):
        if stride[d] != expected:
            return None
        expected *= size[d]
    return [d for d in range(len(size)) if size[d] == 1] + kept


def store(graph: Allocator, value: TensorValue, stride: Sequence[int] | None = None) -> BufferView:
    """Copies `value` into a new buffer, with these strides if they are dense, else contiguous."""
    order = dense_order(value.size, stride)
    if order is None or stride is None or 0 in value.size:
        order, stride = list(range(len(value.size))), contiguous_strides(value.size)
    layout = Layout(value.device, value.dtype, tuple(value.size), tuple(stride))
    return BufferView(graph.add_computed(layout, lambda name: store_body(name, layout, value, order)), layout)


def store_padded(graph: Allocator, value: TensorValue, size: Sequence[int]) -> BufferView:
    """`value` in a new buffer of a larger size, which is filled up with zeros behind it along each dimension."""

    def inner_fn(index: tuple[Index, ...]) -> Any:
        mask = None
        for i, n, whole in zip(index, value.size, size):
            if n != whole:
                test = ops.lt(ops.index_expr(i, torch.int64), ops.constant(n, torch.int64))
                mask = test if mask is None else ops.logical_and(mask, test)
        return value.load(index) if mask is None else ops.masked(mask, lambda: value.load(index), 0)

    whole = store(graph, Pointwise(value.device, value.dtype, tuple(size), inner_fn))
    whole.buffer.zeros_from = value.size[-1]  # type: ignore[attr-defined]
    return BufferView(whole.buffer, whole.layout.with_view(value.size, whole.layout.stride))


def store_body(name: str, layout: Layout, value: TensorValue, order: Sequence[int]) -> LoopBody:
    """The loop body that writes `value` to buffer `name` with `layout`; `order` lists the dimensions, outermost first.
    Complex values are in memory, and their parts are copied."""
    if layout.dtype.is_complex:
        assert isinstance(value, BufferView)
        parts = BufferView(value.buffer, value.layout.parts())
        return parts_body(name, layout, [lambda i: parts.load((*i, 0)), lambda i: parts.load((*i, 1))], order)

    def fn(loop: tuple[Index, ...], _: tuple[Index, ...]) -> None:
        index = _ordered(loop, order)
        ops.store(name, layout.index(index), ops.to_dtype(value.load(index), layout.dtype))

    return trace([value.size[d] for d in order], (), fn)


def parts_body(name: str, layout: Layout, parts: Sequence[InnerFn], order: Sequence[int]) -> LoopBody:
    """The loop body that writes parts to buffer `name` one behind the other: with a `layout` of complex numbers the
    real and the imaginary part, else the elements along its last dimension. `parts` are functions of the index that
    give them; `order` is as for `store_body`."""
    whole = layout.parts() if layout.dtype.is_complex else layout

    def fn(loop: tuple[Index, ...], _: tuple[Index, ...]) -> None:
        index = _ordered(loop, order)
        values = [ops.to_dtype(part(tuple(index)), whole.dtype) for part in parts]
        for k, value in enumerate(values):
            ops.store(name, whole.index((*index, k)), value)

    return trace([whole.size[d] for d in order], (), fn)


def _ordered(loop: tuple[Index, ...], order: Sequence[int]) -> list[Index]:
    """The index of an element, given the loop variables of its dimensions in this order."""
    index: list[Index] = [0] * len(order)
    for d, i in zip(order, loop):
        index[d] = i
    return index


def store_complex(graph: Allocator, real: TensorValue, imag: TensorValue, like: Layout) -> BufferView:
    """A new buffer with complex numbers of these parts. It has the strides of `like` if those are dense, else it is
    contiguous."""
    order, stride = dense_order(like.size, like.stride), like.stride
    if order is None or 0 in like.size:
        order, stride = list(range(len(like.size))), contiguous_strides(like.size)
    layout = Layout(like.device, like.dtype, like.size, tuple(stride))
    parts = [real.loader(), imag.loader()]
    return BufferView(graph.add_computed(layout, lambda name: parts_body(name, layout, parts, order)), layout)


def store_interleaved(graph: Allocator, parts: Sequence[TensorValue]) -> BufferView:
    """A new contiguous buffer with these values of equal size along a new last dimension."""
    first = parts[0]
    layout = Layout.contiguous(first.device, first.dtype, (*first.size, len(parts)))
    loaders, order = [x.loader() for x in parts], list(range(len(first.size)))
    return BufferView(graph.add_computed(layout, lambda name: parts_body(name, layout, loaders, order)), layout)


@dataclass(frozen=True)
class AlikeBuffers:
    """`count` ranges of `each` consecutive buffers, of which the first is number `first` of the graph: each range is
    the one before with the names of other buffers."""

    first: int
    each: int
    count: int


@dataclass(eq=False)
class GraphIR:
    """A lowered graph. `buffers` holds ComputedBuffers and ExternKernels in program order.

    `outputs` are values in memory, Python ints, or None. `viewed` are the positions of outputs that must be distinct
    tensor objects although an input or an earlier output has the same memory and layout. `not_fused`: sentences on why
    the scheduler left loops apart that access the same buffers. `generated`: names of calls of products for which
    kernels are generated without measuring (see `lower.alignment.is_generated`). `alike`: ranges of buffers that are
    copies of each other, None if there are none.
    """

    inputs: list[Any]
    constants: list[Any]
    buffers: list[Any]
    outputs: list[BufferView | float | None]
    origins: dict[str, fx.Node] | None = None
    viewed: frozenset[int] = frozenset()
    not_fused: list[str] = field(default_factory=list)
    generated: frozenset[str] = frozenset()
    alike: AlikeBuffers | None = None
