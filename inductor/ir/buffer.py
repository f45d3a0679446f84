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
from .symbolic import Index, combined


@dataclass(frozen=True, eq=False)
class Layout:
    """Device, dtype, size, strides and offset of a tensor in its buffer; strides and offset count elements.

    Layouts compare equal only if their symbolic sizes are certain to be equal.
    """

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
        """A tensor's sizes and strides with offset 0, since kernels receive the tensor's data pointer."""
        return Layout(tensor.device, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def index(self, index: Sequence[Index]) -> Index:
        """The position of element `index`, in elements from the start of the buffer."""
        return combined(index, self.stride, self.offset)

    def with_view(self, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Layout:
        """The same memory with other sizes and strides, and with another offset if one is given."""
        return replace(
            self, size=tuple(size), stride=tuple(stride), offset=self.offset if offset is None else offset
        )

    def parts(self) -> Layout:
        """Of complex numbers: the same memory as real numbers, with a last dimension of size 2 for the real and the
        imaginary part."""
        stride = (*(2 * s for s in self.stride), 1)
        return Layout(self.device, part_dtype(self.dtype), (*self.size, 2), stride, 2 * self.offset)

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


_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def part_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which loops access memory of `dtype`: of complex numbers, that of their parts, else `dtype`."""
    return _PARTS.get(dtype, dtype)


def contiguous_strides(size: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, as torch computes them (a dimension of size 0 counts as 1)."""
    out, stride = [], 1
    for n in reversed(size):
        out.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(out))


@dataclass(eq=False)
class Buffer:
    """A named piece of memory."""

    name: str
    layout: Layout

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its elements."""
        return self.layout.dtype


@dataclass(eq=False)
class InputBuffer(Buffer):
    """Graph input number `position`. `opaque`: a tensor in a layout of oneDNN's own, which only ATen reads."""

    position: int = 0
    opaque: bool = False


@dataclass(eq=False)
class ConstantBuffer(Buffer):
    """A tensor attribute of the graph module, whose value is known at compile time."""

    value: torch.Tensor | None = None


@dataclass(eq=False)
class ComputedBuffer(Buffer):
    """A buffer filled by a loop nest. With `mutates`, the body stores into that input or earlier buffer, and
    `name` has no memory. `zeros_from`: the position in each row from which on the row was filled up with zeros; None if
    it was not."""

    body: LoopBody
    origins: tuple[fx.Node, ...] = ()
    mutates: str | None = None
    zeros_from: int | None = None


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
    """A call of an ATen overload. Operands: Buffer, View, lists of them, and plain Python values. With `mutates`, it
    writes to that input, its first argument."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[MultiOutput | None, ...] = ()
    origins: tuple[fx.Node, ...] = ()
    returns_tuple: bool = field(default=False)
    mutates: str | None = None

    def operands(self) -> Iterator[Buffer | View]:
        """All tensor operands, in order."""
        stack: list[Any] = [*self.args, *self.kwargs.values()]
        while stack:
            arg = stack.pop(0)
            if isinstance(arg, Buffer | View):
                yield arg
            elif isinstance(arg, list | tuple):
                stack[:0] = arg
