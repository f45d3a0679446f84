"""Lowering of `pyframe::random_bits`, the only random operator that kernels compute.

`aot/random.py` decomposes other random operators into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.buffer import Layout
from ..ir.handler import ops
from ..ir.nodes import Pointwise, TensorValue
from ..ir.symbolic import Index
from .registry import LoweringGraph, lowering

_WORK = 4  # less than the real cost, so that it is recomputed and not stored: it reads no memory but the seed


@lowering("pyframe::random_bits")
def random_bits(graph: LoweringGraph, seeds: TensorValue, which: int, size: Sequence[int]) -> TensorValue:
    """32 random bits per element, computed from seed number `which` and the position of the element."""
    layout = Layout.contiguous(seeds.device, torch.int32, size)

    def inner_fn(index: tuple[Index, ...]) -> Any:
        seed = seeds.load((which,))
        high = ops.bitwise_right_shift(seed, ops.constant(32, torch.int64))
        halves = (ops.to_dtype(half, torch.int32) for half in (seed, high))
        return ops.random_bits(*halves, ops.index_expr(layout.index(index), torch.int32))

    return Pointwise(seeds.device, torch.int32, layout.size, inner_fn, reads=seeds.reads, work=_WORK)
