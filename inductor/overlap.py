"""Tests whether tensors share memory: two tensors with each other, or elements of one tensor among themselves, as in an
expanded tensor.

Capture and tracing ask this about real and fake tensors, mostly to find writes that would change more than one element
or operand, which functionalization cannot express. `aot/memory.py` answers it for the nodes of a graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def extent(size: Sequence[Any], stride: Sequence[Any]) -> int:
    """How many elements of memory lie from the first element of a strided tensor to its last, both included."""
    return 1 + sum((n - 1) * s for n, s in zip(size, stride)) if math.prod(size) else 0


def address_span(x: torch.Tensor, size: Sequence[int] | None = None, stride: Sequence[int] | None = None) -> range:
    """The addresses of the bytes from the first element of `x` to its last; empty if it has no elements. `size` and
    `stride`: those to assume instead of the tensor's own."""
    elements = extent(x.shape if size is None else size, x.stride() if stride is None else stride)
    return range(x.data_ptr(), x.data_ptr() + elements * x.element_size())


def intersect(a: range, b: range) -> bool:
    """Whether two ranges with step 1 have a number in common. An empty range inside the other counts as well."""
    return a.start < b.stop and b.start < a.stop


def memory_of(x: torch.Tensor) -> int:
    """A key that is equal for tensors that share memory. A sparse tensor shares with none."""
    return x.untyped_storage()._cdata if x.layout == torch.strided else id(x)


def elements_overlap(x: torch.Tensor) -> bool:
    """Whether elements of `x` may share memory, as in an expanded tensor. Of symbolic strides, only 0 counts. Without
    elements, none do, whatever the strides: torch gives empty results strides of 0."""
    if any(type(n) is int and n == 0 for n in x.shape):
        return False
    dims = sorted((s, n) for s, n in zip(x.stride(), x.shape) if type(s) is int and type(n) is int and n != 1)
    if any(type(s) is int and s == 0 and (type(n) is not int or n > 1) for s, n in zip(x.stride(), x.shape)):
        return True
    reach = 0
    for step, length in dims:
        if step <= reach:
            return True
        reach += step * (length - 1)
    return False


def spans_overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the memory from the first to the last element of one strided tensor intersects that of another. Symbolic
    sizes count with their values for the example inputs; True if one has no such value."""
    if memory_of(a) != memory_of(b):
        return False
    spans = [_span_in_bytes(x) for x in (a, b)]
    if spans[0] is None or spans[1] is None:
        return True
    return intersect(spans[0], spans[1])


def _span_in_bytes(x: torch.Tensor) -> range | None:
    """The bytes of its storage from the first element of a tensor to its last; None if that depends on data."""
    numbers = [n if isinstance(n, int) else n.node.hint for n in (x.storage_offset(), *x.shape, *x.stride())]
    if None in numbers:
        return None
    start, size, stride = numbers[0], numbers[1 : 1 + x.dim()], numbers[1 + x.dim() :]
    return range(start * x.element_size(), (start + extent(size, stride)) * x.element_size())


def partly_the_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two dense tensors share memory without being identical element by element. For tensors of unknown sizes:
    whether they may."""
    if a is b or not (a.layout == b.layout == torch.strided):
        return False
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    if not (_is_known(a) and _is_known(b)):
        return not _look_alike(a, b)
    if not (_is_dense(a) and _is_dense(b)):
        return _turned(a, b)
    starts = [int(x.storage_offset()) * x.element_size() for x in (a, b)]
    ends = [start + x.numel() * x.element_size() for start, x in zip(starts, (a, b))]
    if starts[0] >= ends[1] or starts[1] >= ends[0]:
        return False
    return (starts[0], a.shape, a.stride()) != (starts[1], b.shape, b.stride())


def _is_known(x: torch.Tensor) -> bool:
    """Whether all sizes, strides and the offset are plain integers."""
    return all(type(n) is int for n in (*x.shape, *x.stride(), x.storage_offset()))


def _look_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors on one storage have equal sizes, strides and offset, comparing symbols as expressions."""
    facts = [[getattr(n, "node", n) for n in (x.storage_offset(), *x.shape, *x.stride())] for x in (a, b)]
    return [getattr(n, "expr", n) for n in facts[0]] == [getattr(n, "expr", n) for n in facts[1]]


def _turned(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of known sizes differ only in the order of their dimensions."""
    first, second = ([(s, n) for n, s in zip(x.shape, x.stride()) if n != 1] for x in (a, b))
    return bool(a.storage_offset() == b.storage_offset()) and first != second and sorted(first) == sorted(second)


def _is_dense(x: torch.Tensor) -> bool:
    """Whether a tensor of known sizes, with at least one element, fills its memory without gaps."""
    return x.numel() > 0 and extent(x.shape, x.stride()) == x.numel()
