"""Finds operands of a write that share memory with what is written, where eager raises an error or reads new values.

ATen's kernels work on memory, while the functional form of an operator reads all operands first. The two agree if
operands are apart from what is written, or if the operator is elementwise and an operand is exactly what is written.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..fx_utils.arguments import tensors_in
from ..fx_utils.writes import is_elementwise
from ..overlap import memory_of, partly_the_same, spans_overlap

_WRITES_OF_ITEMS = (operator.setitem, "__setitem__")


def not_to_be_written(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The operands of a call of `target` whose functional form may differ from eager if the call writes to them."""
    if target in _WRITES_OF_ITEMS:
        return [args[0]] if _overlaps_items(*args[:3]) else []
    given = tensors_in((args, kwargs))
    if len({memory_of(x) for x in given}) == len(given) or isinstance(args[0] if args else None, list | tuple):
        return []  # `run_in_place` compares the tensors of lists
    differ = partly_the_same if is_elementwise(target) else spans_overlap
    return [x for k, x in enumerate(given) if any(differ(x, y) for y in (*given[:k], *given[k + 1 :]))]


def _overlaps_items(x: torch.Tensor, index: Any, value: Any) -> bool:
    """Whether `x[index] = value` reads the memory that it writes, other than each element at its own place."""
    keys = index if isinstance(index, tuple) else (index,)
    others = [y for y in tensors_in((keys, value)) if memory_of(y) == memory_of(x)]
    if not others:
        return False
    if not all(key is None or key is ... or type(key) in (int, slice, torch.SymInt) for key in keys):
        return any(spans_overlap(x, y) for y in others)
    items = x[index]  # a view; eager writes the value, expanded to its size, with `copy_`
    return partly_the_same(items, value.expand_as(items) if value.dim() <= items.dim() else value)
