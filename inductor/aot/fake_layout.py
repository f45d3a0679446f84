"""Layouts of results on the CPU for which torch's fake operators have other strides than its kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses import fake_impls

aten = torch.ops.aten


@functools.cache
def mend_layouts() -> None:
    """Makes fake tensors on the CPU have the strides that the kernels give: channels last stay channels last."""
    if not fake_impls._is_op_registered_to_fake_rule(aten.roll.default):
        fake_impls.register_op_impl(aten.roll.default)(on_cpu(_rolled))


def on_cpu(result: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for fake tensors: `result` on the CPU, what torch does elsewhere or where that is NotImplemented."""

    def rule(mode: Any, operator: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.device.type != "cpu":
            return NotImplemented
        with mode:
            return result(x, *args, **kwargs)

    return rule


def _like(x: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=memory_format)


def _rolled(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """A concatenation of two parts for each dimension; the flat tensor is rolled without dimensions."""
    if not dims or len(shifts) != len(dims) or not all(-x.dim() <= d < x.dim() for d in dims):
        return NotImplemented
    for shift, d in zip(shifts, dims):
        size = x.shape[d]
        known = isinstance(shift, int) and isinstance(size, int)
        whole = known and (size == 0 or shift % size == 0)  # one of the parts is empty
        x = _like(x, torch.contiguous_format if whole else suggest_memory_format(x))
    return x
