"""The operators on lists of tensors (`torch._foreach_add`), decomposed into the operators on single tensors.

Each becomes a loop that fuses with its neighbours; on a GPU the loops of all tensors are a few launches
(`codegen/triton/horizontal.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
_BINARY = "add sub mul div pow maximum minimum clamp_max clamp_min".split()
_TERNARY = "addcmul addcdiv".split()
# Of a tensor and a number, what some of the binary operators on tensors are.
_WITH_NUMBER: dict[str, Callable[..., Any]] = {"maximum": torch.clamp_min, "minimum": torch.clamp_max}


def _unary(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensors: [fn(x) for x in tensors]


def _with_one(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Each tensor with the same number or tensor."""
    return lambda tensors, other, **kwargs: [fn(x, other, **kwargs) for x in tensors]


def _with_each(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Each tensor with its own tensor or number."""
    return lambda tensors, others, **kwargs: [fn(x, y, **kwargs) for x, y in zip(tensors, others, strict=True)]


def _scaled_by_one(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensors, a, b, value=1: [fn(x, y, z, value=value) for x, y, z in zip(tensors, a, b, strict=True)]


def _scaled_by_each(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensors, a, b, scalars: [
        fn(x, y, z, value=value) for x, y, z, value in zip(tensors, a, b, scalars, strict=True)
    ]


def power_of_number(base: float, exponents: Sequence[Tensor]) -> list[Tensor]:
    """torch._foreach_pow of a number."""
    return [torch.pow(base, x) for x in exponents]


def lerp_by_one(tensors: Sequence[Tensor], ends: Sequence[Tensor], weight: float) -> list[Tensor]:
    """torch._foreach_lerp with one weight."""
    return [torch.lerp(x, y, weight) for x, y in zip(tensors, ends, strict=True)]


def lerp_by_each(tensors: Sequence[Tensor], ends: Sequence[Tensor], weights: Sequence[Any]) -> list[Tensor]:
    """torch._foreach_lerp with a weight for each tensor."""
    return [torch.lerp(x, y, weight) for x, y, weight in zip(tensors, ends, weights, strict=True)]


def norms(tensors: Sequence[Tensor], ord: float = 2, dtype: torch.dtype | None = None) -> list[Tensor]:
    """torch._foreach_norm."""
    return [torch.linalg.vector_norm(x, ord, dtype=dtype) for x in tensors]


def zeros(tensors: Sequence[Tensor]) -> list[Tensor]:
    """torch._foreach_zero."""
    return [torch.zeros_like(x) for x in tensors]


def unscaled(tensors: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> tuple[list[Tensor], Tensor]:
    """What a GradScaler computes: each tensor multiplied by `inv_scale` (one element, float32), half precision in
    float32, and 1 if an element of any was not finite, else `found_inf` (one element)."""
    factor = inv_scale.reshape(())
    finite = torch.stack([torch.isfinite(x).all() for x in tensors]).all()
    results = [(x.to(torch.float32) * factor).to(x.dtype) if x.dtype.itemsize == 2 else x * factor for x in tensors]
    return results, torch.where(finite, found_inf, 1)


def foreach_decompositions() -> dict[Any, Callable[..., Any]]:
    """The table: an overload of an operator on lists to a function that calls the operator on each item."""
    table: dict[Any, Callable[..., Any]] = {}

    def put(name: str, overload: str, fn: Callable[..., Any]) -> None:
        packet = getattr(aten, f"_foreach_{name}", None)
        if packet is not None and overload in packet.overloads():
            table[getattr(packet, overload)] = fn

    for name in _UNARY:
        put(name, "default", _unary(getattr(torch, name)))
    for name in _BINARY:
        fn = getattr(torch, name)
        number = _WITH_NUMBER.get(name, fn)
        put(name, "List", _with_each(fn))
        put(name, "Tensor", _with_one(fn))
        put(name, "Scalar", _with_one(number))
        put(name, "ScalarList", _with_each(number))
    for name in _TERNARY:
        put(name, "Scalar", _scaled_by_one(getattr(torch, name)))
        put(name, "ScalarList", _scaled_by_each(getattr(torch, name)))
    put("pow", "ScalarAndTensor", power_of_number)
    put("lerp", "Scalar", lerp_by_one)
    put("lerp", "List", lerp_by_each)
    put("lerp", "ScalarList", lerp_by_each)
    put("norm", "Scalar", norms)
    put("zero", "default", zeros)
    table[aten._amp_foreach_non_finite_check_and_unscale.default] = unscaled
    return table
