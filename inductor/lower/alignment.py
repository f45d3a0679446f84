"""Decides which matrix products are padded, so that each row of their operands and results begins at a multiple of 16
bytes.

In half precision the kernels of cuBLAS for other products reach about a seventh of the speed of those for aligned ones.
A vocabulary of 50,257 tokens is the usual case. Aligned strides alone do not help: the sizes have to be multiples, too.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from ..fx_utils.arguments import node_at
from ..fx_utils.views import ANY_VIEW, OF_ALL_ELEMENTS, operator_name
from ..ir.buffer import Layout
from ..ir.sized import AnyTensor
from .products import is_row_product, is_row_product_with_bias
from .registry import find

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.bmm.default)
DEVICES = ("cuda",)  # device types whose libraries are slow for rows that are not aligned
ALIGNED_BYTES = 16
# Multiply-adds below which a product takes a few microseconds at any speed, so that padding cannot pay.
LEAST_WORK = 1 << 29
# Padding pays if each element that is copied is used in so many multiply-adds: a copy of 2 bytes at 4 TB/s takes as
# long as 60 of them lose at the lower speed. A result that only generated kernels read is not copied.
LEAST_USES, LEAST_USES_UNCOPIED = 256, 64
# For sums of at most so many terms a generated kernel, which writes unaligned rows at nearly full speed, beats
# the padded product and the copies of its result and of the second factor. On an H200, with 50,257 columns: 8192 rows
# and 768 terms 1143 us instead of 1403, 4096 terms 5123 instead of 5289, 64 rows and 768 terms 32 instead of 156.
MOST_GENERATED_TERMS = 4096
LEAST_ROWS = 32  # of the first factor of such a product


def padded_sizes(product: tuple[fx.Node, fx.Node], result: fx.Node) -> tuple[int, int, int] | None:
    """The sizes (m, k, n) to which a product of [.., m, k] and [.., k, n] matrices, given as nodes, is padded; None if
    it is not: because it is not in half precision or not on a GPU, its sizes are symbolic, or it would not pay.

    `result`: the node that computes the product.
    """
    left, right = (x.meta["val"] for x in product)
    if not _can_change(left, right) or is_generated(product, result):
        return None
    (m, k), n = left.shape[-2:], right.shape[-1]
    along, across = left.stride()[-1] == 1, right.stride()[-1] == 1  # the last dimension is the contiguous one
    if math.prod(left.shape) * n < LEAST_WORK or not (along or left.stride()[-2] == 1):
        return None
    if not (across or right.stride()[-2] == 1):
        return None
    sizes = (m if along else _aligned(m, left), _aligned(k, left) if along or not across else k, _aligned(n, left))
    changes = [new != old for new, old in zip(sizes, (m, k, n))]
    least = LEAST_USES_UNCOPIED if read_by_loops(result) else LEAST_USES
    if not any(changes) or changes[2] and k < least:
        return None
    if (changes[0] or changes[1]) and n < LEAST_USES or (changes[1] or changes[2]) and m < LEAST_USES:
        return None
    return sizes


def is_generated(product: tuple[fx.Node, fx.Node], result: fx.Node) -> bool:
    """Whether a generated kernel computes the product of two matrices, given as nodes, in every mode: only the rows of
    its result are not aligned, and that result is returned or read by ATen alone, so that it would have to be copied.
    `result`: as in `padded_sizes`."""
    left, right = (x.meta["val"] for x in product)
    if result.target is not aten.mm.default or not _can_change(left, right):
        return False
    (m, k), n = left.shape, right.shape[-1]
    if m < LEAST_ROWS or k > MOST_GENERATED_TERMS or m * k * n < LEAST_WORK or n == _aligned(n, right):
        return False
    in_order = left.stride(1) == 1 and right.stride(0) == 1 and min(left.stride(0), right.stride(1)) >= k
    starts = (left.stride(0), right.stride(1), left.storage_offset(), right.storage_offset())
    return (
        in_order and all(type(x) is int and x == _aligned(x, left) for x in starts) and not _is_read_by_a_loop(result)
    )


def _can_change(left: AnyTensor, right: AnyTensor) -> bool:
    """Whether a product is in half precision, on a GPU, and of static sizes."""
    if left.device.type not in DEVICES or left.dtype not in (torch.float16, torch.bfloat16):
        return False
    return all(type(n) is int for x in (left, right) for n in (*x.shape, *x.stride()))


def _is_read_by_a_loop(node: fx.Node) -> bool:
    """Whether a user of a result, looking through views, is lowered to a generated kernel."""
    return any(
        _is_read_by_a_loop(user) if operator_name(user) in ANY_VIEW else user.op != "output" and _in_loops(user)
        for user in node.users
    )


def _aligned(size: int, x: AnyTensor) -> int:
    unit = ALIGNED_BYTES // x.dtype.itemsize
    return -(-size // unit) * unit


def has_padded_rows(result: fx.Node, product: tuple[fx.Node, fx.Node]) -> bool:
    """Whether the rows of the result of a product will be padded."""
    sizes = padded_sizes(product, result)
    return sizes is not None and sizes[2] != product[1].meta["val"].shape[-1]


def read_by_loops(node: fx.Node) -> bool:
    """Whether all users of a result, looking through views, are lowered to generated kernels."""
    return bool(node.users) and all(
        read_by_loops(user) if operator_name(user) in OF_ALL_ELEMENTS else _in_loops(user) for user in node.users
    )


def _in_loops(node: fx.Node) -> bool:
    """Whether the lowering of a node, if it has one, is likely to take it."""
    if node.target in PRODUCTS:
        return is_row_product(node_at(node, 0).meta["val"], node_at(node, 1).meta["val"])
    if node.target is aten.addmm.default:
        return is_row_product_with_bias(node)
    return find(node.target) is not None


def padded_length(node: fx.Node) -> int | None:
    """The length to pad the rows of a computed value to, since a product reads it, directly or through views, that will
    be padded; None for others."""
    val = node.meta["val"]
    if not isinstance(val, torch.Tensor) or val.device.type not in DEVICES or val.dim() < 2 or not val.is_contiguous():
        return None
    length = val.shape[-1]
    if type(length) is not int or length == (aligned := _aligned(length, val)):
        return None
    return aligned if any(_reads_rows(user, node, length) for user in node.users) else None


def _reads_rows(user: fx.Node, operand: fx.Node, length: int) -> bool:
    """Whether a user is a product that will be padded along the rows (or columns) of `length` elements of a value."""
    if user.target in PRODUCTS:
        val, product = operand.meta["val"], (node_at(user, 0), node_at(user, 1))
        sizes = padded_sizes(product, user)
        if sizes is None:
            return False
        padded = sizes[:2] if operand is product[0] else sizes[1:]
        rows = (val.shape[-1], *val.stride()[-2:], padded[1]), (val.shape[-2], *val.stride()[:-3:-1], padded[0])
        return (length, length, 1, _aligned(length, val)) in rows
    return operator_name(user) in ANY_VIEW and any(_reads_rows(each, user, length) for each in user.users)


def turned(layout: Layout) -> Layout:
    """The layout of the transposed matrix (or batch of them)."""
    size, stride = layout.size, layout.stride
    return layout.with_view((*size[:-2], size[-1], size[-2]), (*stride[:-2], stride[-1], stride[-2]))
