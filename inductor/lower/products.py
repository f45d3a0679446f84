"""Lowering of matrix products with one row, as in decoding one token: a GPU computes them as reductions.

Such a product reads each element of the matrix once, so that its time is that of reading the matrix. A generated kernel
reaches the memory's bandwidth sooner than cuBLAS does (on an H200, 6144 x 2048 in bfloat16: 8.0 us instead of 10.2,
768 x 3072: 3.4 instead of 8.0), and what follows (a bias, an activation, a residual) is computed in the same kernel.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue
from ..ir.sized import AnyTensor
from ..ir.symbolic import Index
from .common import Reduce, drop
from .registry import LoweringGraph, Unlowered, lowering

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LEAST_RESULTS, LEAST_LENGTH, MAX_LENGTH = 256, 64, 1 << 15  # of results, and of terms of each
MAX_WORK = 2  # of an element of the row that is computed again for each result


def is_row_product(left: AnyTensor, right: AnyTensor) -> bool:
    """Whether the product of two matrices (or batches), given as fake tensors, is lowered here: one row times a matrix
    whose columns are contiguous, on a GPU."""
    if left.device.type != "cuda" or left.dtype not in DTYPES or left.dtype != right.dtype:
        return False
    sizes = (*left.shape, *right.shape, *right.stride())
    if left.dim() != right.dim() or any(type(n) is not int for n in sizes) or left.shape[-2] != 1:
        return False
    length, columns = right.shape[-2:]
    results = math.prod(left.shape[:-2]) * columns
    apart = right.stride(-2) == 1 and right.stride(-1) >= length
    return apart and results >= LEAST_RESULTS and LEAST_LENGTH <= length <= MAX_LENGTH


@lowering("mm", "bmm")
def row_product(graph: LoweringGraph, left: TensorValue, right: TensorValue, *other: Any, **named: Any) -> TensorValue:
    """The product of a row and a matrix. Unlowered for all other products."""
    x, matrix = (node.meta["val"] for node in graph.node.args[:2])  # type: ignore[union-attr]  # nodes, not numbers
    if not graph.row_products or other or named or graph.val.dtype != x.dtype or not is_row_product(x, matrix):
        raise Unlowered
    if isinstance(left, Pointwise) and left.work > MAX_WORK:
        left = left.realize(graph)
    rank = x.dim()
    space = Reduce((*x.shape[:-1], matrix.shape[-1], x.shape[-1]), (rank,))

    def term(index: tuple[Index, ...]) -> Any:
        *batch, _, column, k = index
        a = ops.to_dtype(left.load((*batch, 0, k)), torch.float32)
        return ops.mul(a, ops.to_dtype(right.load((*batch, k, column)), torch.float32))

    return drop(space(graph, left, "sum", term, graph.val.dtype), space.dims)
