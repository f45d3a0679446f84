"""Polyfills of the `torch._foreach_*` overloads that take their scalars (one per list item) as a tensor.

These overloads read the values of that tensor, so they have no fake implementation.  The versions here use operators
that take tensors instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = Sequence[Tensor]


def addcdiv(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor) -> tuple[Tensor, ...]:
    return tuple(x + s * (a / b) for x, a, b, s in zip(self, tensor1, tensor2, scalars.unbind(), strict=True))


def addcdiv_(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor) -> None:
    for x, a, b, s in zip(self, tensor1, tensor2, scalars.unbind(), strict=True):
        x.add_(s * (a / b))


def addcmul(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor) -> tuple[Tensor, ...]:
    return tuple(x + s * (a * b) for x, a, b, s in zip(self, tensor1, tensor2, scalars.unbind(), strict=True))


def addcmul_(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor) -> None:
    for x, a, b, s in zip(self, tensor1, tensor2, scalars.unbind(), strict=True):
        x.add_(s * (a * b))


# Operator -> its polyfill, for calls whose fourth argument (or argument `scalars`) is a tensor.
WITH_TENSOR_SCALARS: dict[Any, Callable[..., Any]] = {
    torch._foreach_addcdiv: addcdiv,
    torch._foreach_addcdiv_: addcdiv_,
    torch._foreach_addcmul: addcmul,
    torch._foreach_addcmul_: addcmul_,
}
