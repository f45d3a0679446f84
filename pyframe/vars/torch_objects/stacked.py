"""`torch.tensor([a, b, 2])` of 0-d tensors and numbers: eager reads each value, the graph stacks them. Also models
`new_tensor` of numbers that only the graph knows."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..containers.sequence import SequenceVar, is_plain
from ..numbers.symint import is_unbacked
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar, tensor_and_args


def stack(tx: Tracer, function: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """A call of `torch.tensor` or `as_tensor` with lists of 0-d tensors on the CPU and of numbers; None for any other
    call."""
    if len(args) != 1 or not kwargs.keys() <= {"dtype"} or not is_plain(args[0]):
        return None
    if function not in (torch.tensor, torch.as_tensor):
        return None
    items, leaves = args[0].items, list(_leaves(args[0]))
    if tx.graph.modes.has_device or not any(isinstance(leaf, TensorVar) or is_unbacked(leaf) for leaf in leaves):
        return None
    if len({len(item.items) if is_plain(item) else None for item in items}) > 1:
        return None
    kinds = [_dtype_of(tx, leaf) for leaf in leaves]
    if any(kind is None for kind in kinds):
        return None
    promoted = functools.reduce(torch.promote_types, kinds)  # type: ignore[arg-type]
    dtype = slots.constant_or(kwargs.get("dtype", ConstVar(None)), False)
    dtype = promoted if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or dtype is not promoted and not dtype.is_floating_point:
        return None
    return tx.graph.call(torch.stack, [tuple(_converted(tx, item, dtype) for item in items)], {})


def _leaves(data: Var) -> Iterator[Var]:
    """What nested lists and tuples hold."""
    for item in data.items if is_plain(data) else ():
        yield from _leaves(item) if is_plain(item) else (item,)


def _dtype_of(tx: Tracer, item: Var) -> torch.dtype | None:
    """The dtype that eager infers for an item; None if it does something else with it than to read its value."""
    if isinstance(item, TensorVar):
        fake = item.fake
        plain = fake.dim() == 0 and fake.device.type == "cpu" and fake.layout is torch.strided
        return fake.dtype if plain and not fake.requires_grad and not fake.is_complex() else None
    kind = item.python_type() if is_unbacked(item) else type(slots.constant_or(item, None))
    return {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}.get(kind)


def _converted(tx: Tracer, item: Var, dtype: torch.dtype) -> Var:
    """An item as a 0-d tensor. Eager reads a float64 or an int64, and rounds that."""
    if is_plain(item) or is_unbacked(item):
        return tx.call(tx.wrap(torch.tensor, None), [item], {"dtype": ConstVar(dtype)})
    if not isinstance(item, TensorVar):
        return tx.graph.call(torch.tensor, [item], {"dtype": dtype})
    if item.fake.dtype is dtype:
        return item
    wide = item if item.fake.is_floating_point() else tx.graph.call_method("to", [item, torch.float64], {})
    return tx.graph.call_method("to", [wide if dtype.is_floating_point else item, dtype], {})


@register(torch.Tensor, method="new_tensor")
def _new_tensor(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`tensor.new_tensor(data)`; of numbers that only the graph knows, `torch.tensor` with the dtype of `tensor`."""
    tensor, args = tensor_and_args(args)
    on_cpu = tensor.fake.device.type == "cpu" and not tx.graph.modes.has_device
    if len(args) != 1 or not kwargs.keys() <= {"dtype"} or not on_cpu or not _holds_unbacked(args[0]):
        return tx.graph.call_method("new_tensor", [tensor, *args], kwargs)
    given = kwargs.get("dtype", ConstVar(None))
    dtype = ConstVar(tensor.fake.dtype) if slots.constant_or(given, 0) is None else given
    return tx.call(tx.wrap(torch.tensor, None), args, {"dtype": dtype})


def _holds_unbacked(data: Var) -> bool:
    """Whether a number in `data`, or in its lists, is known at run time only."""
    return any(map(_holds_unbacked, data.items)) if isinstance(data, SequenceVar) else is_unbacked(data)
