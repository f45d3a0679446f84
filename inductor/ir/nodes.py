"""The tensor values that lowerings take and return: `Pointwise`, a computation that has no memory yet, and
`BufferView`, a strided view of a buffer.

The ops of the loop IR see the elements of a value in `compute_dtype(value.dtype)`: float16 and bfloat16 are computed in
float32 and rounded when they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
import torch.fx as fx

from .body import LoopBody, trace
from .buffer import Buffer, ComputedBuffer, Layout, contiguous_strides
from .handler import ops
from .symbolic import Index

InnerFn: TypeAlias = Callable[[tuple[Index, ...]], Any]


class Allocator(Protocol):
    """What realizing needs of a graph."""

    def add_computed(self, layout: Layout, body_of: Callable[[str], LoopBody]) -> ComputedBuffer:
        """A new buffer, filled by `body_of(its name)`, at the end of the graph's list."""
        ...


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a value of `dtype` is computed."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@dataclass(eq=False)
class BufferView:
    """Memory: `layout` is a view of `buffer`."""

    buffer: Buffer
    layout: Layout

    device = property(lambda self: self.layout.device)
    dtype = property(lambda self: self.layout.dtype)
    size = property(lambda self: self.layout.size)
    reads = 1
    work = 0

    def load(self, index: Sequence[Index]) -> Any:
        """The element, in the compute dtype."""
        value = ops.load(self.buffer.name, self.layout.index(index), self.layout.dtype)
        return ops.to_dtype(value, compute_dtype(self.layout.dtype))

    def loader(self) -> InnerFn:
        """`load`, as a function."""
        return self.load

    def realize(self, graph: Allocator) -> BufferView:
        """Itself."""
        return self


@dataclass(eq=False)
class Pointwise:
    """A pointwise computation: `inner_fn(index)` is the element, in the compute dtype of `dtype`.

    `reads` and `work` estimate loads and arithmetic an element costs. `stride` is the dimension order memory for it
    should have. `view`, for a view of another value, is that value and how the view's layout follows from its layout
    (None where it does not). `depth`: operators between it and memory.
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

    def load(self, index: Sequence[Index]) -> Any:
        """The element, in the compute dtype; read from memory once the value has been realized."""
        return self.memory.load(index) if self.memory is not None else self.inner_fn(tuple(index))

    def loader(self) -> InnerFn:
        """`load`, as a function. It asks at tracing time whether the value is in memory by then."""
        return self.load

    def realize(self, graph: Allocator) -> BufferView:
        """The value in memory: a view of what it is a view of if possible, otherwise a new buffer."""
        if self.memory is None:
            self.memory = self._as_view(graph) or store(graph, self, self.stride)
        return self.memory

    def _as_view(self, graph: Allocator) -> BufferView | None:
        if self.view is None:
            return None
        base, relayout = self.view
        if isinstance(base, Pointwise) and base.memory is None and math.prod(base.size) > math.prod(self.size):
            return None  # less work to compute the part than to keep the whole
        memory = base.realize(graph)
        layout = relayout(memory.layout)
        return None if layout is None else BufferView(memory.buffer, layout)


TensorValue: TypeAlias = Pointwise | BufferView


def dense_order(size: Sequence[int], stride: Sequence[int] | None) -> list[int] | None:
    """Dimensions from outermost to innermost if the strides are those of a permuted row-major tensor, else None."""
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
    """A copy of `value` in a new buffer, with these strides if they are dense, else contiguous."""
    order = dense_order(value.size, stride)
    if order is None or stride is None or 0 in value.size:
        order, stride = list(range(len(value.size))), contiguous_strides(value.size)
    layout = Layout(value.device, value.dtype, tuple(value.size), tuple(stride))
    return BufferView(graph.add_computed(layout, lambda name: store_body(name, layout, value, order)), layout)


def store_body(name: str, layout: Layout, value: TensorValue, order: Sequence[int]) -> LoopBody:
    """The body that writes `value` to `layout` of buffer `name`, its loops in dimension order `order`."""

    def fn(loop: tuple[Index, ...], _: tuple[Index, ...]) -> None:
        index: list[Index] = [0] * len(order)
        for d, i in zip(order, loop):
            index[d] = i
        ops.store(name, layout.index(index), ops.to_dtype(value.load(index), layout.dtype))

    return trace([value.size[d] for d in order], (), fn)


@dataclass(eq=False)
class GraphIR:
    """A lowered graph. `outputs` are values in memory, Python ints, or None. `viewed`: positions of the outputs that
    are tensors of their own although an input, or an output before them, has the same memory and layout.

    `buffers` holds ComputedBuffers and ExternKernels in an order in which they can run.
    """

    inputs: list[Any]
    constants: list[Any]
    buffers: list[Any]
    outputs: list[BufferView | int | None]
    origins: dict[str, fx.Node] | None = None
    viewed: frozenset[int] = frozenset()
