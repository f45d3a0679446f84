"""Embedding bags as loops, on a GPU: sums, means and maxima of the rows of a table whose indices are a part of a list,
and their gradients. Bags of one length are rewritten before (`passes/embedding_bags.py`).

The points of a reduction are the places in the list; those that count, from the offset of the bag to that of the next
one, are its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.body import LoopBody, trace
from ..ir.buffer import Layout
from ..ir.handler import ops
from ..ir.nodes import BufferView, Pointwise, TensorValue, compute_dtype
from ..ir.size import known
from ..ir.symbolic import Index
from .common import Reduce, drop, used_results
from .index_write import IndexWrite
from .index_writes import table_of_sums
from .indexing import from_start
from .registry import LoweringGraph, Unlowered, lowering
from .searching import position
from .segments import sums_of_rows

_SUM, _MEAN, _MAX = 0, 1, 2
_INDICES = (torch.int64, torch.int32)


@dataclass(frozen=True)
class _Bags:
    """Bags of rows of `weight`, and what the operators on them share."""

    indices: TensorValue
    offsets: TensorValue
    with_last: bool  # whether the last offset is the end of the last bag
    weights: TensorValue | None
    padding: int  # the index that does not count; -1 if all do

    @property
    def count(self) -> Any:
        """The number of bags."""
        return self.offsets.size[0] - self.with_last

    def check(self, *tables: TensorValue) -> None:
        """Unlowered where loops do not do these bags of these two-dimensional tensors."""
        lists = [self.indices, self.offsets, *([] if self.weights is None else [self.weights])]
        if any(x.device.type == "cpu" or x.device != tables[0].device for x in (*lists, *tables)):
            raise Unlowered
        if any(len(x.size) != 1 for x in lists) or any(len(x.size) != 2 for x in tables):
            raise Unlowered
        if self.indices.dtype not in _INDICES or self.offsets.dtype not in _INDICES:
            raise Unlowered
        sizes = [self.count, *(n for x in tables for n in x.size)]
        if not known(self.indices.size[0], ">", 1) or not all(known(n, ">", 0) for n in sizes):
            raise Unlowered
        if type(self.offsets.size[0]) is not int:  # the number of steps of a search
            raise Unlowered

    def bounds(self, bag: Index) -> tuple[Any, Any]:
        """The first place of a bag in the list, and the end."""
        load = lambda at: ops.to_dtype(self.offsets.load([at]), torch.int64)  # noqa: E731
        if self.with_last:
            return load(bag), load(bag + 1)
        inside = ops.lt(ops.index_expr(bag + 1, torch.int64), ops.constant(self.count, torch.int64))
        end = ops.masked(inside, lambda: load(bag + 1), 0)
        return load(bag), ops.where(inside, end, ops.constant(self.indices.size[0], torch.int64))

    def counts(self, at: Index) -> Any:
        """Whether the index at a place of the list counts, where some do not."""
        return ops.ne(ops.to_dtype(self.indices.load([at]), torch.int64), ops.constant(self.padding, torch.int64))

    def length(self, bag: Index, at: Index) -> Any:
        """The number of indices of a bag that count, int64, in a loop over places `at`."""
        bounds = self.bounds(bag)
        if self.padding < 0:
            return ops.sub(bounds[1], bounds[0])
        return ops.reduction(torch.int64, "sum", ops.to_dtype(self.counts(at), torch.int64), bounds)

    def row(self, weight: TensorValue, at: Index, column: Index) -> Any:
        """The element of the table that the index at a place chooses."""
        index = from_start(self.indices.load([at]), weight.size[0])
        return weight.load([ops.indirect(index, weight.size[0]), column])

    def of_place(self, like: TensorValue, offset_to_bag: TensorValue) -> TensorValue:
        """The number of the bag of each place in the list: `offset_to_bag`, if ATen has computed it."""
        if tuple(offset_to_bag.size) == tuple(self.indices.size):
            return offset_to_bag
        return self.bag_numbers(like.device, torch.int64)

    def bag_numbers(self, device: torch.device, dtype: torch.dtype) -> Pointwise:
        """The number of the bag of each place in the list."""
        offsets = self.offsets

        def inner_fn(index: tuple[Index, ...]) -> Any:
            place = ops.index_expr(index[0], offsets.dtype)
            after = ops.to_dtype(position(offsets, (), place, right=True), dtype)
            return ops.sub(after, ops.constant(1, dtype))

        steps = offsets.size[0].bit_length()
        return Pointwise(device, dtype, tuple(self.indices.size), inner_fn, steps, 4 * steps)


def _reduced(
    graph: LoweringGraph, like: TensorValue, size: Sequence[Any], places: Any, dtype: torch.dtype, fn: Any
) -> BufferView:
    """A new buffer of `size` with `fn(index, place)` for each index, which reduces over the places of the list."""
    layout = Layout.contiguous(like.device, dtype, tuple(size))

    def body_of(name: str) -> LoopBody:
        def run(index: tuple[Index, ...], inner: tuple[Index, ...]) -> None:
            ops.store(name, layout.index(index), ops.to_dtype(fn(index, inner[0]), dtype))

        return trace(list(size), [places], run)

    return BufferView(graph.add_computed(layout, body_of), layout)


@lowering("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    graph: LoweringGraph,
    weight: TensorValue,
    indices: TensorValue,
    offsets: TensorValue,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: TensorValue | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Any, ...]:
    """The result for each bag, and what the backward needs: the bag of each index, the number of indices in each bag,
    and for maxima their indices, -1 for bags of nothing."""
    bags = _Bags(indices, offsets, include_last_offset, per_sample_weights, padding_idx)
    bags.check(weight)
    vals, used = graph.val, used_results(graph.node)
    result: TensorValue
    if mode == _MAX:
        result, extremes = _maxima(graph, weight, bags, vals[3].dtype)
    else:
        result, extremes = _sums(graph, weight, bags, mode == _MEAN), _nothing(vals[3])
    lengths = _lengths(graph, weight, bags, vals[2]) if 2 in used else None
    of_places = known(vals[1].shape[0], ">", 0)
    numbers = bags.bag_numbers(weight.device, vals[1].dtype) if of_places else _nothing(vals[1])
    return result, numbers, lengths, extremes


def _nothing(val: Any) -> Pointwise:
    """What ATen leaves uninitialized."""
    return Pointwise(val.device, val.dtype, tuple(val.shape), lambda _: ops.constant(0, val.dtype))


def _sums(graph: LoweringGraph, weight: TensorValue, bags: _Bags, mean: bool) -> BufferView:
    dtype = compute_dtype(weight.dtype)

    def fn(index: tuple[Index, ...], at: Index) -> Any:
        bag, column = index
        element = bags.row(weight, at, column)
        if bags.weights is not None:
            element = ops.mul(element, ops.to_dtype(bags.weights.load([at]), dtype))
        if bags.padding >= 0:
            element = ops.where(bags.counts(at), element, ops.constant(0, dtype))
        total = ops.reduction(dtype, "sum", element, bags.bounds(bag))
        if not mean:
            return total
        count = ops.maximum(bags.length(bag, at), ops.constant(1, torch.int64))
        return ops.div(total, ops.to_dtype(count, dtype))

    return _reduced(graph, weight, (bags.count, weight.size[1]), bags.indices.size[0], weight.dtype, fn)


def _maxima(
    graph: LoweringGraph, weight: TensorValue, bags: _Bags, kind: torch.dtype
) -> tuple[Pointwise, Pointwise]:
    """The greatest elements, 0 for bags of nothing, and their indices, of dtype `kind`."""
    dtype, size = compute_dtype(weight.dtype), (bags.count, weight.size[1])
    no_place = lambda: ops.constant(-1, torch.int64)  # noqa: E731

    def fn(index: tuple[Index, ...], at: Index) -> Any:
        bag, column = index
        element = bags.row(weight, at, column)
        if bags.padding >= 0:
            element = ops.where(bags.counts(at), element, ops.constant(-math.inf, dtype))
        place = ops.reduction(torch.int64, "argmax", element, bags.bounds(bag))
        return ops.where(ops.gt(bags.length(bag, at), ops.constant(0, torch.int64)), place, no_place())

    places = _reduced(graph, weight, size, bags.indices.size[0], torch.int64, fn)

    def found(index: tuple[Index, ...]) -> tuple[Any, Any]:
        place = places.load(index)
        exists = ops.ge(place, ops.constant(0, torch.int64))
        at = ops.indirect(ops.where(exists, place, ops.constant(0, torch.int64)), bags.indices.size[0])
        return exists, ops.to_dtype(bags.indices.load([at]), torch.int64)

    def value(index: tuple[Index, ...]) -> Any:
        exists, row = found(index)
        element = weight.load([ops.indirect(from_start(row, weight.size[0]), weight.size[0]), index[1]])
        return ops.where(exists, element, ops.constant(0, dtype))

    def row_of(index: tuple[Index, ...]) -> Any:
        exists, row = found(index)
        return ops.to_dtype(ops.where(exists, row, no_place()), kind)

    return (
        Pointwise(weight.device, weight.dtype, size, value, 3, 4),
        Pointwise(weight.device, kind, size, row_of, 2, 3),
    )


def _lengths(graph: LoweringGraph, weight: TensorValue, bags: _Bags, val: Any) -> TensorValue:
    """The number of indices in each bag; 0 at places of `val` that are no bag."""
    if tuple(val.shape) != (bags.count,):
        raise Unlowered
    places = bags.indices.size[0]
    if bags.padding >= 0:
        return _reduced(graph, weight, (bags.count,), places, val.dtype, lambda i, at: bags.length(i[0], at))
    return Pointwise(
        weight.device, val.dtype, (bags.count,), lambda i: ops.to_dtype(bags.length(i[0], 0), val.dtype), 2, 3
    )


@lowering("_embedding_bag_backward")
def embedding_bag_backward(
    graph: LoweringGraph,
    grad: TensorValue,
    indices: TensorValue,
    offsets: TensorValue,
    offset2bag: TensorValue,
    bag_size: TensorValue,
    maximum_indices: TensorValue,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: TensorValue | None,
    padding_idx: int = -1,
) -> TensorValue:
    """The gradient of the table: the gradient of each bag is added to the rows of its indices."""
    bags = _Bags(indices, offsets, known(offsets.size[0], ">", grad.size[0]), per_sample_weights, padding_idx)
    bags.check(grad)
    if scale_grad_by_freq or sparse or grad.dtype != graph.val.dtype:
        raise Unlowered
    if mode == _MAX:
        write = IndexWrite(
            tuple(grad.size), grad, {0: maximum_indices}, lambda at: [0, at[1]], lambda at: at, 2, wraps=False,
            mode="add", ignored=-1,
        )  # fmt: skip
        return table_of_sums(graph, write)
    numbers, dtype = bags.of_place(grad, offset2bag).realize(graph), compute_dtype(grad.dtype)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        bag = ops.indirect(ops.to_dtype(numbers.load(index[:1]), torch.int64), grad.size[0])
        element = grad.load([bag, index[1]])
        if per_sample_weights is not None:
            element = ops.mul(element, ops.to_dtype(per_sample_weights.load(index[:1]), dtype))
        if mode == _MEAN:
            element = ops.div(element, ops.to_dtype(bag_size.load([bag]), dtype))
        return element

    size = (indices.size[0], grad.size[1])
    value = Pointwise(grad.device, grad.dtype, size, inner_fn, grad.reads + 2, grad.work + 3)
    return sums_of_rows(graph, value, indices, padding_idx)


@lowering("_embedding_bag_per_sample_weights_backward")
def weights_backward(
    graph: LoweringGraph,
    grad: TensorValue,
    weight: TensorValue,
    indices: TensorValue,
    offsets: TensorValue,
    offset2bag: TensorValue,
    mode: int,
    padding_idx: int = -1,
) -> TensorValue:
    """The gradients of the weights of single indices: products of a row of the table and a row of `grad`."""
    bags = _Bags(indices, offsets, known(offsets.size[0], ">", grad.size[0]), None, padding_idx)
    bags.check(grad, weight)
    if mode != _SUM or grad.dtype != weight.dtype:
        raise Unlowered
    numbers, dtype = bags.of_place(grad, offset2bag).realize(graph), compute_dtype(grad.dtype)

    def fn(index: tuple[Index, ...]) -> Any:
        bag = ops.indirect(ops.to_dtype(numbers.load(index[:1]), torch.int64), grad.size[0])
        product = ops.mul(grad.load([bag, index[1]]), bags.row(weight, index[0], index[1]))
        return ops.where(bags.counts(index[0]), product, ops.constant(0, dtype)) if padding_idx >= 0 else product

    space = Reduce((indices.size[0], grad.size[1]), (1,))
    return drop(space(graph, grad, "sum", fn, graph.val.dtype), [1])
