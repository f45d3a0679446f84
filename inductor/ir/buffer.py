"""Buffers of a lowered graph: a named piece of memory, its layout, and the loop nest or ATen call that fills it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx

from .body import LoopBody
from .size import same
from .symbolic import Index


@dataclass(frozen=True, eq=False)
class Layout:
    """How a tensor lies in its buffer; strides and offset count elements. Layouts are equal if they are known to be."""

    device: torch.device
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        if (self.device, self.dtype, len(self.size)) != (other.device, other.dtype, len(other.size)):
            return False
        pairs = zip((*self.size, *self.stride, self.offset), (*other.size, *other.stride, other.offset))
        return all(same(a, b) for a, b in pairs)

    def __hash__(self) -> int:
        return hash((self.device, self.dtype, self.size, self.stride, self.offset))

    @staticmethod
    def contiguous(device: torch.device, dtype: torch.dtype, size: Sequence[int]) -> Layout:
        """The row-major layout."""
        return Layout(device, dtype, tuple(size), contiguous_strides(size))

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        """A tensor's own sizes and strides, offset 0: kernels are given its data pointer."""
        return Layout(tensor.device, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def index(self, index: Sequence[Index]) -> Index:
        """Where element `index` lies, in elements from the start of the buffer."""
        total: Index = self.offset
        for i, stride in zip(index, self.stride):
            total = total + i * stride
        return total

    def with_view(self, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Layout:
        """Another view of the same memory."""
        return replace(
            self, size=tuple(size), stride=tuple(stride), offset=self.offset if offset is None else offset
        )

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.size)

    @property
    def extent(self) -> int:
        """Elements from the start of the buffer to the end of the last element."""
        if not self.numel:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride))


def contiguous_strides(size: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, as torch gives them (a dimension of size 0 counts as 1)."""
    out, stride = [], 1
    for n in reversed(size):
        out.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(out))


@dataclass(eq=False)
class Buffer:
    """Named memory."""

    name: str
    layout: Layout

    @property
    def dtype(self) -> torch.dtype:
        """Its element type."""
        return self.layout.dtype


@dataclass(eq=False)
class InputBuffer(Buffer):
    """Graph input number `position`."""

    position: int = 0


@dataclass(eq=False)
class ConstantBuffer(Buffer):
    """A tensor known when compiling."""

    value: torch.Tensor | None = None


@dataclass(eq=False)
class ComputedBuffer(Buffer):
    """Filled by a loop nest. With `mutates`, that input buffer is what the body stores into, and `name` is no memory."""  # noqa: E501

    body: LoopBody
    origins: tuple[fx.Node, ...] = ()
    mutates: str | None = None


@dataclass(frozen=True, eq=False)
class View:
    """A strided view of a buffer, as an operand of an ExternKernel."""

    buffer: Buffer
    layout: Layout


@dataclass(eq=False)
class MultiOutput(Buffer):
    """Output number `position` of an ExternKernel."""

    position: int = 0


@dataclass(eq=False)
class ExternKernel:
    """A call of an ATen overload. Operands: Buffer, View, lists of them, and plain Python values."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[MultiOutput | None, ...] = ()
    origins: tuple[fx.Node, ...] = ()
    returns_tuple: bool = field(default=False)

    def operands(self) -> Iterator[Buffer | View]:
        """Each tensor operand."""
        stack: list[Any] = [*self.args, *self.kwargs.values()]
        while stack:
            arg = stack.pop(0)
            if isinstance(arg, Buffer | View):
                yield arg
            elif isinstance(arg, list | tuple):
                stack[:0] = arg
