"""Lowering of matrix products with one row, as in decoding one token, or on the CPU with few, as reductions.

On a GPU such a product reads each element of the matrix once, so that its time is that of reading the matrix. A
generated kernel reaches the memory's bandwidth sooner than cuBLAS does (on an H200, 6144 x 2048 in bfloat16: 8.0 us
instead of 10.2, 768 x 3072: 3.4 instead of 8.0), and what follows (a bias, an activation, a residual) is computed in
the same kernel.

On the CPU, one loop over a row of the matrix multiplies it by all rows of the other factor, each of which has its own
sums in registers, so that the matrix is read once. It may be computed there: of weights in int8, only these are read.
In float32, 4 rows times 1024 x 1024 take 60 us, half the time of oneDNN. In batches, products with a vector on either
side are loops.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue, store
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import Reduce, derived, drop, operand
from .registry import LoweringGraph, Unlowered, lowering

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LEAST_RESULTS, LEAST_LENGTH, MAX_LENGTH = 256, 64, 1 << 15  # of results, and of terms of each
MAX_WORK = 2  # of an element of the row that is computed again for each result
# On the CPU: as many rows as one loop of a C++ kernel takes, in half precision fewer, as oneDNN has instructions for
# it; terms of a sum; and elements of all rows, which stay in the nearest cache.
MAX_ROWS_CPU, MAX_HALF_ROWS, MAX_LENGTH_CPU, MAX_ELEMENTS_CPU = 8, 2, (1 << 14) - 1, 1 << 13


def is_row_product(left: AnyTensor, right: AnyTensor) -> bool:
    """Whether the product of two matrices (or batches), given as fake tensors, is lowered here: one row times a matrix
    whose columns are contiguous; on the CPU, up to `MAX_ROWS_CPU` rows, and in batches also matrices times one column.
    """
    on_cpu = left.device.type == "cpu"
    if not (on_cpu or left.device.type == "cuda") or left.dtype not in DTYPES or left.dtype != right.dtype:
        return False
    sizes = (*left.shape, *right.shape, *right.stride())
    if left.dim() != right.dim() or any(type(n) is not int for n in (*sizes, *left.stride())):
        return False
    length, columns = right.shape[-2:]
    if on_cpu and left.dim() != 2:
        return left.dtype == torch.float32 and _is_batch_of_vectors(left, right)
    if not _few(left.shape[-2], length, left.dtype) if on_cpu else left.shape[-2] != 1:
        return False
    results = math.prod(left.shape[:-2]) * columns
    apart = right.stride(-2) == 1 and right.stride(-1) >= length
    longest = MAX_LENGTH_CPU if on_cpu else MAX_LENGTH
    return apart and results >= LEAST_RESULTS and LEAST_LENGTH <= length <= longest


def _is_batch_of_vectors(left: AnyTensor, right: AnyTensor) -> bool:
    """Whether each product of two batches is that of a row and a matrix or of a matrix and a column, in which the terms
    of each sum are contiguous. One loop takes a third of the time of as many calls of BLAS."""
    length, columns = right.shape[-2:]
    if left.shape[-2] != 1 and columns != 1 or left.stride(-1) != 1 or right.stride(-2) != 1:
        return False
    results = math.prod(left.shape[:-1]) * columns
    return results >= LEAST_RESULTS and LEAST_LENGTH <= length <= MAX_LENGTH_CPU


def _few(rows: int, length: int, dtype: torch.dtype) -> bool:
    """Whether a kernel for the CPU multiplies this many rows of a length by a matrix sooner than ATen."""
    most = MAX_ROWS_CPU if dtype == torch.float32 else MAX_HALF_ROWS
    return rows == 1 or rows <= most and rows * length <= MAX_ELEMENTS_CPU


@lowering("mm", "bmm")
def row_product(graph: LoweringGraph, left: TensorValue, right: TensorValue, *other: Any, **named: Any) -> TensorValue:
    """The product of one row, or few, and a matrix. Unlowered for all other products."""
    x, matrix = (node.meta["val"] for node in graph.node.args[:2])  # type: ignore[union-attr]  # nodes, not numbers
    if not graph.row_products or other or named or graph.val.dtype != x.dtype or not is_row_product(x, matrix):
        raise Unlowered
    return _product(graph, left, right, graph.val.dtype)


@lowering("addmm")
def row_product_with_bias(
    graph: LoweringGraph, bias: TensorValue, left: TensorValue, right: TensorValue, *other: Any, **named: Any
) -> TensorValue:
    """Such a product of two matrices on the CPU and a bias, rounded once. Unlowered with factors or another dtype."""
    if not graph.row_products or other or named or not is_row_product_with_bias(graph.node):
        raise Unlowered
    dtype, rank = graph.val.dtype, 2
    product, added = (operand(x, torch.float32, rank) for x in (_product(graph, left, right, torch.float32), bias))
    return Pointwise(
        left.device, dtype, tuple(graph.val.shape), lambda index: ops.add(product(index), added(index)), 2, 1
    )


def is_row_product_with_bias(node: fx.Node) -> bool:
    """Whether an `addmm` without factors is lowered here."""
    bias, left, right = (node.args[k].meta["val"] for k in range(3))  # type: ignore[union-attr]
    plain = not node.kwargs and bias.dtype == left.dtype and left.device.type == "cpu"
    return plain and is_row_product(left, right)


def _product(graph: LoweringGraph, left: TensorValue, right: TensorValue, dtype: torch.dtype) -> TensorValue:
    *batch, rows, length = left.size
    if isinstance(left, Pointwise) and left.work > MAX_WORK:
        left = left.realize(graph)
    if rows != 1 and left.dtype != torch.float32:
        left = store(graph, derived(left, lambda element: element, torch.float32))  # converted once
    rank = len(left.size)
    space = Reduce((*batch, rows, right.size[-1], length), (rank,))

    def term(index: tuple[Index, ...]) -> Any:
        *batch, row, column, k = index
        a = ops.to_dtype(left.load((*batch, row, k)), torch.float32)
        return ops.mul(a, ops.to_dtype(right.load((*batch, k, column)), torch.float32))

    return drop(space(graph, left, "sum", term, dtype), space.dims)
