"""Decompositions and Python kernels of torch that give wrong results; traces are made without them.

- multilabel_margin_loss: positions after the first -1 of a target count as targets of class 0 (torch 2.11 to 2.15).
- multi_margin_loss: ATen leaves out differences that are NaN, the decomposition does not.
- Interpolation of uint8: ATen computes with integers, the decompositions with floats; results may differ by one.
- Linear interpolation: see `interpolation.py`.
- dropout that drops nothing: ATen returns its argument, torch's Python kernel a copy, so a write to one of the two is
  not visible in the other. dropout that drops everything: ATen draws no random numbers.
- Nearest interpolation of 1d signals: ATen's results are contiguous; those of the decompositions keep the layout of the
  argument.
- Nearest interpolation of volumes: ATen's results are channels last if the argument is; those of the decompositions of
  torch 2.11 are contiguous.
- softshrink, hardshrink: autograd sees the operators of torch's Python kernel. They multiply the gradient by zero where
  ATen's own formula gives zero, which differs for gradients that are NaN or infinite.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._prims_common import suggest_memory_format

from ..errors import Unsupported
from .interpolation import LINEAR, LINEAR_VEC, linear, linear_vec

aten = torch.ops.aten
WRONG = (aten.multilabel_margin_loss_forward.default, aten.multi_margin_loss.default)
WRONG_FOR_BYTES = (
    aten.upsample_bilinear2d.vec, aten.upsample_bilinear2d.default,
    aten.upsample_bicubic2d.vec, aten.upsample_bicubic2d.default,
)  # fmt: skip
NEAREST = (
    aten.upsample_nearest1d.vec, aten.upsample_nearest1d.default,
    aten._upsample_nearest_exact1d.vec, aten._upsample_nearest_exact1d.default,
)  # fmt: skip
NEAREST_OF_VOLUMES = (
    aten.upsample_nearest3d.vec, aten.upsample_nearest3d.default,
    aten._upsample_nearest_exact3d.vec, aten._upsample_nearest_exact3d.default,
)  # fmt: skip
OWN_GRADIENT = (aten.softshrink.default, aten.hardshrink.default)
# Interpolation whose gradients ATen computes on the CPU faster than the decompositions, which add at indices.
_INTERPOLATION_OF_CPU = (
    *LINEAR, *LINEAR_VEC, aten.upsample_bicubic2d.vec, aten.upsample_bicubic2d.default,
    aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default,
)  # fmt: skip
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def without_mistakes(on_cpu: bool = False) -> Iterator[None]:
    """Within this block, torch's Python dispatcher does not use the wrong kernels either.

    `on_cpu`: all tensors are on the CPU and have sizes that are known; interpolation then runs ATen's kernels.

    Operators in WRONG run ATen's kernels, and those in OWN_GRADIENT have ATen's gradients. A dropout that drops nothing
    returns its argument, and one that drops everything draws no numbers. Operators in LINEAR and LINEAR_VEC compute as
    ATen does. Operators in WRONG_FOR_BYTES raise Unsupported for uint8; such a graph is compiled for each combination
    of sizes. Results of NEAREST become contiguous; those of NEAREST_OF_VOLUMES become channels last if the argument is.
    """
    replaced = _REPLACED | dict.fromkeys(_INTERPOLATION_OF_CPU) if on_cpu else _REPLACED
    taken = [(op, key, op.py_kernels.pop(key)) for op in replaced for key in _KEYS if key in op.py_kernels]
    try:
        for op, key, kernel in taken:
            if (right := replaced[op]) is not None:
                op.py_kernels[key] = right(kernel)
            op._dispatch_cache.clear()
        yield
    finally:
        for op, key, kernel in taken:
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()


def _without_bytes(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.dtype == torch.uint8:
            raise Unsupported("interpolation of uint8 with dynamic sizes")
        return kernel(x, *args, **kwargs)

    return call


def _linear(kernel: Callable[..., Any], ours: Callable[..., Any], refuses_bytes: bool) -> Callable[..., Any]:
    of_integers = _without_bytes(kernel) if refuses_bytes else kernel

    @functools.wraps(kernel)
    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return (ours if x.is_floating_point() else of_integers)(x, *args, **kwargs)

    return call


def _contiguous(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(kernel)
    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        return kernel(*args, **kwargs).contiguous()

    return call


def _by_channels(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(kernel)
    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return kernel(x, *args, **kwargs).contiguous(memory_format=suggest_memory_format(x))

    return call


def _as_aten_drops(dropout: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(dropout)
    def call(x: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:
        if not train or p == 0 or 0 in x.shape:
            return x
        return x * torch.zeros((), dtype=x.dtype, device=x.device) if p == 1 else dropout(x, p, train)

    return call


# What stands for an operator's Python kernels; None: nothing does, so that ATen's kernels run.
_REPLACED: dict[torch._ops.OpOverload, Callable[[Callable[..., Any]], Callable[..., Any]] | None] = {
    **dict.fromkeys((*WRONG, *OWN_GRADIENT)),
    **dict.fromkeys(WRONG_FOR_BYTES, _without_bytes),
    **{op: functools.partial(_linear, ours=linear, refuses_bytes=op in WRONG_FOR_BYTES) for op in LINEAR},
    **{op: functools.partial(_linear, ours=linear_vec, refuses_bytes=op in WRONG_FOR_BYTES) for op in LINEAR_VEC},
    **dict.fromkeys(NEAREST, _contiguous),
    **dict.fromkeys(NEAREST_OF_VOLUMES, _by_channels),
    aten.dropout.default: _as_aten_drops,
}
