"""Polyfills of `torch._foreach_*`, the operators on lists of tensors.

The overloads that take their scalars (one per list item) as a tensor read the values of that tensor, so they have no
fake implementation. The versions here use operators that take tensors instead.  Calls with a float that varies between
calls, such as a learning rate, become one operator per item, as in ATen's kernels for the CPU: those take the float as
it is when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = Sequence[Tensor]


def _items(scalars: Tensor | Tensors) -> Tensors:
    return scalars.unbind() if isinstance(scalars, Tensor) else scalars


def addcdiv(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor | Tensors) -> tuple[Tensor, ...]:
    return tuple(x + s * (a / b) for x, a, b, s in zip(self, tensor1, tensor2, _items(scalars), strict=True))


def addcdiv_(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor | Tensors) -> None:
    for x, a, b, s in zip(self, tensor1, tensor2, _items(scalars), strict=True):
        x.add_(s * (a / b))


def addcmul(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor | Tensors) -> tuple[Tensor, ...]:
    return tuple(x + s * (a * b) for x, a, b, s in zip(self, tensor1, tensor2, _items(scalars), strict=True))


def addcmul_(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Tensor | Tensors) -> None:
    for x, a, b, s in zip(self, tensor1, tensor2, _items(scalars), strict=True):
        x.add_(s * (a * b))


# Operator -> its polyfill, for calls whose fourth argument (or argument `scalars`) is a tensor. Instead of floats,
# optimizers of torch that are compiled pass a list of 0-d tensors.
WITH_TENSOR_SCALARS: dict[Any, Callable[..., Any]] = {
    torch._foreach_addcdiv: addcdiv,
    torch._foreach_addcdiv_: addcdiv_,
    torch._foreach_addcmul: addcmul,
    torch._foreach_addcmul_: addcmul_,
}


def add(self: Tensors, other: Any, alpha: Any = 1) -> tuple[Tensor, ...]:
    if isinstance(other, (list, tuple)):
        return tuple(torch.add(x, y, alpha=alpha) for x, y in zip(self, other, strict=True))
    return tuple(torch.add(x, other) for x in self)


def add_(self: Tensors, other: Any, alpha: Any = 1) -> None:
    if isinstance(other, (list, tuple)):
        for x, y in zip(self, other, strict=True):
            x.add_(y, alpha=alpha)
    else:
        for x in self:
            x.add_(other)


def mul(self: Tensors, other: Any) -> tuple[Tensor, ...]:
    if isinstance(other, (list, tuple)):
        return tuple(x * y for x, y in zip(self, other, strict=True))
    return tuple(x * other for x in self)


def mul_(self: Tensors, other: Any) -> None:
    if isinstance(other, (list, tuple)):
        for x, y in zip(self, other, strict=True):
            x.mul_(y)
    else:
        for x in self:
            x.mul_(other)


def addcdiv_by(self: Tensors, tensor1: Tensors, tensor2: Tensors, value: Any) -> tuple[Tensor, ...]:
    return tuple(torch.addcdiv(x, a, b, value=value) for x, a, b in zip(self, tensor1, tensor2, strict=True))


def addcdiv_by_(self: Tensors, tensor1: Tensors, tensor2: Tensors, value: Any) -> None:
    for x, a, b in zip(self, tensor1, tensor2, strict=True):
        x.addcdiv_(a, b, value=value)


# Operator -> its polyfill, for calls with a float that varies; in other operators the float becomes a constant.
WITH_FLOATS: dict[Any, Callable[..., Any]] = {
    torch._foreach_add: add,
    torch._foreach_add_: add_,
    torch._foreach_mul: mul,
    torch._foreach_mul_: mul_,
    torch._foreach_addcdiv: addcdiv_by,
    torch._foreach_addcdiv_: addcdiv_by_,
}
