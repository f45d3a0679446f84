"""Decides which operands and results of matrix products get padded rows, so that each row begins at a multiple of 16
bytes.

In half precision the kernels of cuBLAS for rows that are not aligned reach about a seventh of the speed of those for
aligned rows. A vocabulary of 50,257 tokens is the usual case. Padding changes strides only: sizes remain, and no kernel
reads or writes the elements between the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..fx_utils.arguments import node_at
from ..fx_utils.views import ANY_VIEW, OF_ALL_ELEMENTS, operator_name
from ..ir.buffer import Layout
from .registry import find

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.bmm.default)
DEVICES = ("cuda",)  # device types whose libraries are slow for rows that are not aligned
ALIGNED_BYTES = 16
# Multiply-adds below which a product takes a few microseconds at any speed, so that padding cannot pay.
LEAST_WORK = 1 << 29
# Padding pays if each element that is copied is used in so many multiply-adds: a copy of 2 bytes at 4 TB/s takes as
# long as 60 of them lose at the lower speed. A result that only generated kernels read is not copied at all.
LEAST_USES, LEAST_USES_UNCOPIED = 256, 64


def is_slow_unaligned(product: tuple[fx.Node, fx.Node]) -> bool:
    """Whether the product of two matrices (or batches), given as nodes, is one whose speed depends on aligned rows:
    large, in half precision and on a GPU. Products with symbolic sizes are not."""
    left, right = (x.meta["val"] for x in product)
    if left.device.type not in DEVICES or left.dtype not in (torch.float16, torch.bfloat16):
        return False
    if any(type(n) is not int for x in (left, right) for n in (*x.shape, *x.stride())):
        return False
    return bool(math.prod(left.shape) * right.shape[-1] >= LEAST_WORK)


def has_unaligned_rows(val: Any) -> bool:
    """Whether a row-major tensor has rows that do not begin at multiples of 16 bytes."""
    return bool(val.is_contiguous()) and val.shape[-1] * val.dtype.itemsize % ALIGNED_BYTES != 0


def padded_result(node: fx.Node) -> bool:
    """Whether the result of a node is that of a product and is to have padded rows."""
    return node.target in PRODUCTS and is_padded(node, (node_at(node, 0), node_at(node, 1)))


def is_padded(node: fx.Node, product: tuple[fx.Node, fx.Node]) -> bool:
    """Whether the result of `node`, computed from this product of matrices, is to have padded rows."""
    if not is_slow_unaligned(product) or not has_unaligned_rows(node.meta["val"]):
        return False
    uses = product[0].meta["val"].shape[-1]
    return bool(uses >= (LEAST_USES_UNCOPIED if read_by_loops(node) else LEAST_USES))


def read_by_loops(node: fx.Node) -> bool:
    """Whether all users of a result, looking through views, are lowered to generated kernels."""
    return bool(node.users) and all(
        read_by_loops(user) if operator_name(user) in OF_ALL_ELEMENTS else find(user.target) is not None
        for user in node.users
    )


def padded_operand(node: fx.Node) -> bool:
    """Whether a computed value is to have padded rows, since a product reads it, directly or through views."""
    val = node.meta["val"]
    if not isinstance(val, torch.Tensor) or val.device.type not in DEVICES or val.dim() < 2:
        return False
    return has_unaligned_rows(val) and any(_reads_rows(user, node, val.shape[-1]) for user in node.users)


def _reads_rows(user: fx.Node, operand: fx.Node, length: int) -> bool:
    """Whether a user is a product whose operand has the rows (or columns) of `length` elements of a value."""
    if user.target in PRODUCTS:
        val = operand.meta["val"]
        rows = {(val.shape[-1], *val.stride()[-2:]), (val.shape[-2], *val.stride()[:-3:-1])}
        return (length, length, 1) in rows and is_slow_unaligned((node_at(user, 0), node_at(user, 1)))
    return operator_name(user) in ANY_VIEW and any(_reads_rows(each, user, length) for each in user.users)


def padded_strides(size: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Row-major strides, with as many elements between rows as align each row."""
    unit = ALIGNED_BYTES // itemsize
    stride = [1, -(-size[-1] // unit) * unit]
    for n in reversed(size[1:-1]):
        stride.append(stride[-1] * n)
    return tuple(reversed(stride[: len(size)]))


def is_aligned_matrix(layout: Layout) -> bool:
    """Whether cuBLAS reads a matrix (or batch of them) as it is, with every row, or every column, aligned."""
    if any(type(n) is not int for n in (*layout.size, *layout.stride, layout.offset)):
        return False
    (rows, columns), (across, along) = layout.size[-2:], layout.stride[-2:]
    unit = ALIGNED_BYTES // layout.dtype.itemsize
    if any(n % unit for n in (*layout.stride[:-2], layout.offset)):
        return False
    row_major = along == 1 and across >= columns and across % unit == 0
    return row_major or (across == 1 and along >= rows and along % unit == 0)


def turned(layout: Layout) -> Layout:
    """The layout of the transposed matrix (or batch of them)."""
    size, stride = layout.size, layout.stride
    return layout.with_view((*size[:-2], size[-1], size[-2]), (*stride[:-2], stride[-1], stride[-2]))
