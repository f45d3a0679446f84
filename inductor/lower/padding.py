"""Lowerings of padding by reflection and replication, and of the gradient of reflection, on the CPU. On a GPU torch's
decompositions are used.

Along the dimension of adjacent elements, each part of the result is a load of its own, which reads forwards or
backwards; code generation splits the loop where the parts meet. Along the other dimensions the position is computed
once per row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, compute_dtype
from ..ir.symbolic import Index
from .common import shared
from .registry import LoweringGraph, Unlowered, lowering

_INT = torch.int64
Test = tuple[str, Index, int]  # a comparison of an index with a constant


@dataclass(frozen=True)
class _Pad:
    """The padding of a dimension of `size` elements; negative numbers of elements are cut off."""

    size: int
    before: int
    after: int
    reflects: bool

    def parts(self, i: Index) -> list[tuple[Test, Index]]:
        """The position that each part of the result reads at position `i`, behind the test for whether `i` is in that
        part or an earlier one."""
        found: list[tuple[Test, Index]] = []
        if self.before > 0:
            found.append((("lt", i, self.before), self.before - i if self.reflects else 0))
        found.append((("lt", i, self.before + self.size), i - self.before))
        last = self.size - 1
        if self.after > 0:
            end = self.before + self.size + self.after
            found.append((("lt", i, end), 2 * last + self.before - i if self.reflects else last))
        return found

    def position(self, i: Index) -> Index:
        """The position that is read at position `i`, computed."""
        value = ops.index_expr(i - self.before, _INT)
        last = ops.constant(self.size - 1, _INT)
        if self.reflects:
            value = ops.sub(last, ops.abs(ops.sub(last, ops.abs(value))))
        else:
            value = ops.minimum(ops.maximum(value, ops.constant(0, _INT)), last)
        return ops.indirect(value, self.size)

    def readers(self, j: Index) -> list[tuple[Index, list[Test]]]:
        """The positions of the result that read the element `j` if all tests are true. Only for reflection."""
        first, last = self.before, self.size - 1
        inside: list[Test] = [("ge", j, -first)] * (first < 0)
        inside += [("lt", j, self.size + self.after)] * (self.after < 0)
        found: list[tuple[Index, list[Test]]] = [(j + first, inside)]
        if first > 0:
            found.append((first - j, [("ge", j, 1), ("lt", j, first + 1)]))
        if self.after > 0:
            found.append((first + 2 * last - j, [("ge", j, last - self.after), ("lt", j, last)]))
        return found


def _tested(test: Test) -> Any:
    name, index, limit = test
    return getattr(ops, name)(ops.index_expr(index, _INT), ops.constant(limit, _INT))


def _pads(size: Sequence[Any], padding: Sequence[int], reflects: bool) -> list[_Pad]:
    """The padding of the last dimensions of a tensor of `size`, outermost first."""
    dims = len(padding) // 2
    if any(type(n) is not int or n == 0 for n in size) or any(type(n) is not int for n in padding):
        raise Unlowered
    return [
        _Pad(n, padding[-2 * d - 2], padding[-2 * d - 1], reflects) for d, n in enumerate(size[len(size) - dims :])
    ]


def innermost(stride: Sequence[int]) -> int:
    """The dimension along which elements are adjacent."""
    return min(range(len(stride)), key=lambda d: (stride[d], -d))


@lowering("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(graph: LoweringGraph, x: TensorValue, padding: Sequence[int]) -> TensorValue:
    """The last dimensions continued by their reflection, without repeating the element at the edge."""
    return _padded(graph, x, padding, True)


@lowering("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(graph: LoweringGraph, x: TensorValue, padding: Sequence[int]) -> TensorValue:
    """The last dimensions continued by the element at the edge."""
    return _padded(graph, x, padding, False)


def _padded(graph: LoweringGraph, x: TensorValue, padding: Sequence[int], reflects: bool) -> TensorValue:
    val = graph.val
    if val.device.type != "cpu" or not val.dtype.is_floating_point or 0 in val.shape:
        raise Unlowered
    pads, stride, source = _pads(x.size, padding, reflects), tuple(val.stride()), shared(graph, x)
    first, inner = len(x.size) - len(pads), innermost(stride)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        place = list(index)
        for d, pad in enumerate(pads, first):
            if d != inner and (pad.before or pad.after):
                place[d] = pad.position(index[d])
        if inner < first:
            return source.load(place)
        return joined(source, place, inner, pads[inner - first].parts(index[inner]))

    reads = len(pads) * source.reads
    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, reads, reads * (source.work + 4), stride)


def joined(source: TensorValue, place: list[Index], dim: int, parts: list[tuple[Test, Index]]) -> Any:
    """The element of the part to which a position belongs."""

    def element(position: Index) -> Any:
        return source.load([*place[:dim], position, *place[dim + 1 :]])

    if len(parts) == 1:
        return element(parts[0][1])
    masks = [_tested(test) for test, _ in parts[:-1]]
    out = None
    for k, (_, position) in reversed(list(enumerate(parts))):
        mask = masks[k] if k < len(masks) else ops.logical_not(masks[-1])
        if 0 < k < len(masks):
            mask = ops.logical_and(mask, ops.logical_not(masks[k - 1]))
        choice = ops.masked(mask, lambda position=position: element(position), 0)
        out = choice if out is None else ops.where(masks[k], choice, out)
    return out


@lowering("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")
def reflection_pad_backward(
    graph: LoweringGraph, grad: TensorValue, x: TensorValue, padding: Sequence[int]
) -> TensorValue:
    """For each element, the sum of the gradients of the elements of the result that are copies of it."""
    val = graph.val
    if val.device.type != "cpu" or not val.dtype.is_floating_point or 0 in grad.size:
        raise Unlowered
    pads = _pads(val.shape, padding, True)
    grad, dtype, first = grad.realize(graph), compute_dtype(val.dtype), val.dim() - len(pads)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        total = None
        for readers in itertools.product(*(pad.readers(i) for pad, i in zip(pads, index[first:]))):
            place = [*index[:first], *(position for position, _ in readers)]

            def element(place: list[Index] = place) -> Any:
                return ops.to_dtype(grad.load(place), dtype)

            value = _where_all([test for _, tests in readers for test in tests], element)
            total = value if total is None else ops.add(total, value)
        return total

    cost = 3 ** len(pads)
    return Pointwise(val.device, val.dtype, tuple(val.shape), inner_fn, cost, 4 * cost, tuple(val.stride()))


def _where_all(tests: Sequence[Test], element: Callable[[], Any]) -> Any:
    """`element()` where all tests are true, and zero elsewhere."""
    mask = None
    for test in map(_tested, tests):
        mask = test if mask is None else ops.logical_and(mask, test)
    return element() if mask is None else ops.masked(mask, element, 0.0)
