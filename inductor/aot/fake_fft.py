"""Corrected fake implementations of FFT operators on the CPU.

In torch 2.11, the fake operators give other strides than the kernels that call MKL, or fail.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses import fake_impls

from .fake_layout import on_cpu

aten = torch.ops.aten


@functools.cache
def mend_fft() -> None:
    """Correct the strides of FFT results for fake tensors on the CPU, if torch's fake operators disagree with MKL."""
    if not torch.backends.mkl.is_available():
        return
    for operator, compute in ((aten._fft_c2c, _c2c), (aten._fft_r2c, _r2c), (aten._fft_c2r, _c2r)):
        if not fake_impls._is_op_registered_to_fake_rule(operator.default):
            fake_impls.register_op_impl(operator.default)(on_cpu(_where_wrong(compute)))


def _where_wrong(compute: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """`compute`, or NotImplemented if torch's fake operators are right; checked at the first transform."""

    @functools.wraps(compute)
    def rule(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented if _strides_are_right() else compute(*args, **kwargs)

    return rule


@functools.cache
def _strides_are_right() -> bool:
    """Whether torch's fake operator gives the strides of MKL's results. Imports sympy."""
    importlib.import_module("torch.fx.experimental.symbolic_shapes")  # before the modes are disabled below
    with torch.utils._python_dispatch._disable_current_modes():
        probe = torch.empty((2, 3, 3), dtype=torch.complex64, device="meta").transpose(1, 2)
        return aten._fft_c2c.default(probe, [1, 2], 0, True).stride() == probe.stride()


def _result(x: torch.Tensor, size: Sequence[Any], dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An empty result of a transform over `dims`. It is dense; `dims` are the innermost dimensions, in their order, and
    the others are ordered by decreasing stride in `x`."""
    step = x.stride()
    others = sorted((d for d in range(x.dim()) if d not in dims), key=lambda d: step[d], reverse=True)
    stride: list[Any] = [0] * x.dim()
    count: Any = 1
    for d in reversed([*others, *dims]):
        stride[d] = count
        count = count * size[d]
    return torch.empty_strided(size, stride, dtype=dtype, device=x.device)


def _positive(x: torch.Tensor, dims: Sequence[int]) -> list[int]:
    return [d % x.dim() for d in dims]


def _c2c(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> torch.Tensor:
    """Complex to complex."""
    if not dim:
        return x.clone()
    step = x.stride()
    return _result(x, x.shape, sorted(_positive(x, dim), key=lambda d: step[d], reverse=True), x.dtype)


def _r2c(x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> torch.Tensor:
    """Real to complex; onesided: only half of the last transformed dimension, the rest follows by symmetry."""
    dims, step, size = _positive(x, dim), x.stride(), list(x.shape)
    if onesided:
        size[dims[-1]] = size[dims[-1]] // 2 + 1
    order = [*sorted(dims[:-1], key=lambda d: step[d], reverse=True), dims[-1]]
    return _result(x, size, order, torch.complex128 if x.dtype == torch.float64 else torch.complex64)


def _c2r(x: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: Any) -> torch.Tensor:
    """Complex to real; the last transformed dimension has size `last_dim_size`."""
    dims = _positive(x, dim)
    if len(dims) > 1:
        x = _c2c(x, dims[:-1], normalization, False)
    size = list(x.shape)
    size[dims[-1]] = last_dim_size
    return _result(x, size, dims[-1:], torch.float64 if x.dtype == torch.complex128 else torch.float32)
