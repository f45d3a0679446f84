"""Attention with one row of queries per head, as in decoding one token, as units of a schedule.

The libraries' kernels are made for many rows: one program works for each head, however many keys there are. A call with
one row only reads keys and values, for which the programs of the whole GPU are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.buffer import Buffer, ExternKernel, Layout, View
from .node import Group
from .operator_group import OperatorGroup
from .scheduler import extern_reads

aten = torch.ops.aten
Operand = Buffer | View
# By operator: the position of the mask that is added to the scores (or its name), of the dropout, and of `is_causal`.
_PLACES: dict[Any, tuple[int | str | None, int, int]] = {
    aten._scaled_dot_product_efficient_attention.default: (3, 5, 6),
    aten._scaled_dot_product_cudnn_attention.default: (3, 5, 6),
    aten._scaled_dot_product_flash_attention.default: (None, 3, 4),
    aten._scaled_dot_product_flash_attention_for_cpu.default: ("attn_mask", 3, 4),
}
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MAX_DIM = 256


@dataclass(eq=False)
class RowAttention(OperatorGroup):
    """softmax(query @ key.T * scale + mask) @ value for each batch and head, with one row of queries. No members.

    `query`: [B, H, 1, D], `key`: [B, Hkv, N, D], `value`: [B, Hkv, N, E], `mask`: [B, H, 1, N] or None, `result`:
    [B, H, 1, E]. H is a multiple of Hkv.
    """

    query: Operand = None  # type: ignore[assignment]
    key: Operand = None  # type: ignore[assignment]
    value: Operand = None  # type: ignore[assignment]
    mask: Operand | None = None
    scale: float = 1.0

    def read_names(self) -> set[str]:
        """Buffers that its kernels read."""
        return set(extern_reads(self.kernel))

    def written_names(self) -> set[str]:
        """The result."""
        return {self.result.name}


def with_row_attention(steps: Sequence[Group | ExternKernel]) -> list[Group | ExternKernel]:
    """The schedule with groups in the place of calls of attention with one row of queries on a GPU."""
    return [(_group(step) if isinstance(step, ExternKernel) else None) or step for step in steps]


def _group(kernel: ExternKernel) -> RowAttention | None:
    places = _PLACES.get(kernel.target)
    if places is None or kernel.outputs[0] is None or any(out is not None for out in kernel.outputs[1:]):
        return None
    at_mask, at_dropout, at_causal = places
    dropout, causal = _argument(kernel, at_dropout, 0.0), _argument(kernel, at_causal, False)
    mask = None if at_mask is None else _argument(kernel, at_mask, None)
    query, key, value = kernel.args[:3]
    if dropout or causal or not _fits(query.layout, key.layout, value.layout, mask, kernel.outputs[0].layout):
        return None
    scale = kernel.kwargs.get("scale")
    scale = 1 / math.sqrt(query.layout.size[3]) if scale is None else float(scale)
    outer = [*query.layout.size[:2], key.layout.size[2]]
    return RowAttention(
        outer, [], [], False, {kernel.outputs[0].name}, kernel=kernel, query=query, key=key,
        value=value, mask=mask, scale=scale,
    )  # fmt: skip


def _argument(kernel: ExternKernel, place: int | str, default: Any) -> Any:
    if isinstance(place, str):
        return kernel.kwargs.get(place, default)
    return kernel.args[place] if len(kernel.args) > place else default


def _fits(query: Layout, key: Layout, value: Layout, mask: Operand | None, result: Layout) -> bool:
    """Whether there are kernels for these layouts: of static sizes, on one GPU, with one row of queries."""
    layouts = [query, key, value, result, *([] if mask is None else [mask.layout])]
    if any(type(n) is not int for at in layouts for n in (*at.size, *at.stride, at.offset)):
        return False
    if any(at.device.type != "cuda" or len(at.size) != 4 or 0 in at.size for at in layouts):
        return False
    if len({at.dtype for at in (query, key, value, result)}) > 1 or query.dtype not in DTYPES:
        return False
    if mask is not None and not mask.layout.dtype.is_floating_point:
        return False
    heads = query.size[1], key.size[1]
    return query.size[2] == 1 and max(query.size[3], value.size[3]) <= MAX_DIM and heads[0] % heads[1] == 0


def sizes_of(group: RowAttention) -> Mapping[str, int]:
    """The sizes of the problem: batch `B`, heads `H`, heads of keys `K`, columns `N`, and the lengths `D` and `E`."""
    (batch, heads, _, dim), (_, held, columns, _) = group.query.layout.size, group.key.layout.size
    return {"B": batch, "H": heads, "K": held, "N": columns, "D": dim, "E": group.value.layout.size[3]}
