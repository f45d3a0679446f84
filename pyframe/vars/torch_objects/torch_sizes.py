"""Models `torch.Size(items)`."""

from __future__ import annotations

import torch

from ..containers.sequence import SizeVar
from ..numbers.numpy_scalars import NUMPY_NUMBERS
from ..protocol import slots
from ..protocol.base import Var
from ..registry import register
from ..tracer import Tracer
from .tensor import TensorVar


@register(torch.Size)
def _size(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`torch.Size(iterable)`."""
    if len(args) > 1 or kwargs:
        tx.raise_(TypeError, "torch.Size() takes one iterable")
    return SizeVar([_size_item(tx, place, item) for place, item in enumerate(args[0].unpack(tx) if args else [])])


def _size_item(tx: Tracer, place: int, item: Var) -> Var:
    """An item of `torch.Size(items)`: a number of Python, numpy or torch as it is, the `__index__` of other objects."""
    if not slots.has_type(item, object):
        return item
    if slots.has_type(item, int, torch.SymInt, *NUMPY_NUMBERS) and not slots.has_type(item, bool):
        return item
    whole = isinstance(item, TensorVar) and not (item.fake.is_floating_point() or item.fake.is_complex())
    if whole or (not isinstance(item, TensorVar) and slots.has_method(item, "__index__")):
        return item.call_method(tx, "__index__", [], {})
    name = slots.type_name(item)
    return tx.raise_(TypeError, f"torch.Size() takes an iterable of 'int' (item {place} is '{name}')")
