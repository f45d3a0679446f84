"""`torch.tensor([a, b, 2])` of 0-d tensors and numbers: eager reads each value, the graph stacks them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..containers.sequence import is_plain
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..tracer import Tracer
from .tensor import TensorVar


def stack(tx: Tracer, function: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """A call of `torch.tensor` with a list of 0-d tensors on the CPU and of numbers; None for any other call."""
    if function is not torch.tensor or len(args) != 1 or not kwargs.keys() <= {"dtype"} or not is_plain(args[0]):
        return None
    items = args[0].items
    if not any(isinstance(item, TensorVar) for item in items) or tx.graph.modes.has_device:
        return None
    kinds = [_dtype_of(tx, item) for item in items]
    if any(kind is None for kind in kinds):
        return None
    promoted = functools.reduce(torch.promote_types, kinds)  # type: ignore[arg-type]
    dtype = slots.constant_or(kwargs.get("dtype", ConstVar(None)), False)
    dtype = promoted if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or dtype is not promoted and not dtype.is_floating_point:
        return None
    return tx.graph.call(torch.stack, [tuple(_converted(tx, item, dtype) for item in items)], {})


def _dtype_of(tx: Tracer, item: Var) -> torch.dtype | None:
    """The dtype that eager infers for an item; None if it does something else with it than to read its value."""
    if isinstance(item, TensorVar):
        fake = item.fake
        plain = fake.dim() == 0 and fake.device.type == "cpu" and fake.layout is torch.strided
        return fake.dtype if plain and not fake.requires_grad and not fake.is_complex() else None
    kind = type(slots.constant_or(item, None))
    return {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}.get(kind)


def _converted(tx: Tracer, item: Var, dtype: torch.dtype) -> Var:
    """An item as a 0-d tensor. Eager reads a float64 or an int64, and rounds that."""
    if not isinstance(item, TensorVar):
        return tx.graph.call(torch.tensor, [item], {"dtype": dtype})
    if item.fake.dtype is dtype:
        return item
    wide = item if item.fake.is_floating_point() else tx.graph.call_method("to", [item, torch.float64], {})
    return tx.graph.call_method("to", [wide if dtype.is_floating_point else item, dtype], {})
