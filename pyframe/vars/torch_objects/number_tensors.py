"""Tensors of a number that varies between calls: `torch.full(sizes, x)`, `torch.full_like(t, x)`, `torch.tensor(x)`.

These operators take the number as a constant. The graph creates an empty tensor and fills it instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..numbers.numpy_scalars import NumpyArgumentVar
from ..numbers.symint import NumberVar, is_unbacked
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar, MethodVar
from ..tracer import Tracer


class _Rule(NamedTuple):
    """empty: the operator that creates the tensor. names: of the positional arguments. value: the name of the number.
    infers: whether the dtype is that of the number. options: keyword arguments that `empty` takes, too."""

    empty: Callable[..., Any]
    names: tuple[str, ...]
    value: str
    infers: bool
    options: frozenset[str]


_DTYPE = frozenset({"dtype", "device"})
_FULL = frozenset({"dtype", "device", "layout", "pin_memory", "requires_grad"})
_RULES: dict[Any, _Rule] = {
    torch.full: _Rule(torch.empty, ("size", "fill_value"), "fill_value", True, _FULL),
    torch.full_like: _Rule(
        torch.empty_like, ("input", "fill_value"), "fill_value", False, _FULL | {"memory_format"}
    ),
    torch.scalar_tensor: _Rule(torch.empty, ("s",), "s", False, _FULL),
    torch.tensor: _Rule(torch.empty, ("data",), "data", True, _DTYPE),
    torch.as_tensor: _Rule(torch.empty, ("data", "dtype", "device"), "data", True, _DTYPE),
}  # fmt: skip


def of_number(tx: Tracer, function: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var | None:
    """A call that creates a tensor with a number that varies as each element; None for any other call."""
    rule = _RULES.get(function)
    if rule is None or len(args) > len(rule.names) or tx.graph.stack.in_transform:
        return None
    given = {**dict(zip(rule.names, args, strict=False)), **kwargs}
    number = given.pop(rule.value, None)
    if number is None or not _varies(number, function in _READ_NUMBERS):
        return None
    if not given.keys() <= {*rule.names, *rule.options}:
        return None
    if slots.constant_or(given.get("requires_grad", ConstVar(None)), True) not in (None, False):
        return None
    first = [given.pop(name) for name in rule.names if name in ("size", "input") and name in given]
    if len(first) != ("size" in rule.names or "input" in rule.names):
        return None
    dtype = given.get("dtype")
    if rule.infers and (dtype is None or slots.constant_or(dtype, dtype) is None):
        given["dtype"] = ConstVar(_inferred(number, reads_type=function is not torch.full))
    empty = tx.graph.call(rule.empty, first or [()], given)
    return tx.call(MethodVar(empty, "fill_"), [number], {})


# What reads the value of a number, which a number of tensor data does not have while tracing.
_READ_NUMBERS = (torch.tensor, torch.as_tensor)


def _varies(var: Var, of_data: bool) -> bool:
    """Whether a number varies; with `of_data`, also one that is known at run time only."""
    number = var.number if isinstance(var, NumpyArgumentVar) else var
    if not isinstance(number, NumberVar) or number.is_constant() or is_unbacked(number) and not of_data:
        return False
    return number.python_type() in (int, float)


def _inferred(var: Any, reads_type: bool) -> torch.dtype:
    """The dtype that torch infers from a number of Python or numpy. `reads_type`: from the type of a numpy scalar."""
    if isinstance(var, NumpyArgumentVar):
        if reads_type:
            return torch.tensor(var.example, device="cpu").dtype
        var = var.number
    return torch.int64 if var.python_type() is int else torch.get_default_dtype()
