"""Replaces calls of some torch functions while a torch-level graph is traced to ATen, where tracing the function itself
would fail or differ from eager.

`GraphRun` (`functionalize.py`) looks up each call in `TRACED_AS`. A replacement avoids checks that read the values of
tensors, which fake tensors do not have (`one_hot`); returns the strides that eager's kernels return (`rrelu`);
decomposes what cannot be functionalized (fused optimizers); or raises Unsupported. One level below, `fake_layout`
corrects torch's fake ATen operators, and `torch_mistakes` its decompositions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch._prims_common import suggest_memory_format

from ..errors import Unsupported
from ..ir.nodes import dense_order
from ..overlap import elements_overlap
from .fused_optimizers import FUSED_OPTIMIZERS


def _one_hot(classes: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """F.one_hot. A class that is negative or too large raises RuntimeError, as in eager. On a GPU it raises IndexError
    and the GPU stays usable, while in eager an assertion fails in a kernel."""
    if num_classes <= 0 or classes.dtype != torch.int64:
        return torch._C._nn.one_hot(classes, num_classes)
    rows = torch.eye(num_classes, dtype=torch.int64, device=classes.device)  # not in memory: computed where it is read
    return torch.embedding(rows, classes)


def _select_scatter(x: torch.Tensor, src: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """torch.select_scatter. Unsupported if the result would have gaps in memory, because `x` has."""
    if x.numel() and dense_order(x.shape, x.stride()) is None and not elements_overlap(x):
        raise Unsupported("the memory layout of a result has gaps")
    return torch.select_scatter(x, src, dim, index)


def _max_unpool2d(run: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """F.max_unpool2d or its operator. The kernel keeps channels last; torch's fake implementation does not."""

    def call(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = run(input, *args, **kwargs)
        if input.dim() != 4 or suggest_memory_format(input) is not torch.channels_last:  # noqa: PLR2004
            return result
        return result.contiguous(memory_format=torch.channels_last)

    return call


def _contiguous(function: Callable[..., Any], where: Callable[..., bool]) -> Callable[..., Any]:
    """`function` with a contiguous result if `where(*args)` is true. There, ATen's kernels return a contiguous result
    for arguments of any strides, but fake tensors keep the order of the arguments' dimensions."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result.contiguous() if isinstance(result, torch.Tensor) and where(*args, **kwargs) else result

    return call


def _on_cpu(x: Any, *args: Any, **kwargs: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_cpu


def _not_in_place(*args: Any, **kwargs: Any) -> bool:
    given = dict(zip(("input", "lower", "upper", "training", "inplace"), args)) | kwargs
    return not given.get("inplace", False)


def _of_complex(input: Any, *args: Any, **kwargs: Any) -> bool:
    return isinstance(input, torch.Tensor) and input.is_complex()


def _number_to_tensor(base: Any, *args: Any, **kwargs: Any) -> bool:
    return not isinstance(base, torch.Tensor)


def _without_out(*args: Any, out: Any = None, **kwargs: Any) -> bool:
    return out is None


def _native_group_norm(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """torch.native_group_norm, to which group_norm passes a contiguous copy. Unsupported for other tensors."""
    if not x.is_contiguous(memory_format=suggest_memory_format(x) if x.is_cpu else torch.contiguous_format):
        raise Unsupported("native_group_norm of a tensor that is not contiguous")
    return torch.native_group_norm(x, *args, **kwargs)


def _max_pool1d(run: Callable[..., Any]) -> Callable[..., Any]:
    """F.max_pool1d or its operator. Unsupported for integers on the CPU: only max_pool2d has such a kernel."""

    def call(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if input.is_cpu and not input.is_floating_point() and not kwargs.get("return_indices", False):
            raise Unsupported("max_pool1d of integers")
        return run(input, *args, **kwargs)

    return call


def _quantile(run: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """torch.quantile or torch.nanquantile. ATen checks the values of a tensor `q` on the CPU, but not of fake ones."""

    @functools.wraps(run)
    def call(input: torch.Tensor, q: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = run(input, q, *args, **kwargs)
        if isinstance(q, torch.Tensor) and input.is_cpu:
            within = q.ge(0).logical_and(q.le(1)).all()
            torch._assert_async(within, "quantile() q values must be in the range [0, 1]")
        return result

    return call


_UNPOOLS = (F.max_unpool2d, torch._C._nn.max_unpool2d, torch.ops.aten.max_unpool2d.default)
TRACED_AS: dict[Any, Callable[..., Any]] = {
    torch._C._nn.one_hot: _one_hot,
    torch.select_scatter: _select_scatter,
    torch.Tensor.select_scatter: _select_scatter,
    torch.ops.aten.select_scatter.default: _select_scatter,
    torch.native_group_norm: _native_group_norm,
    torch.ops.aten.native_group_norm.default: _native_group_norm,
    **{run: _max_pool1d(run) for run in (F.max_pool1d, torch.max_pool1d, torch.ops.aten.max_pool1d.default)},
    **{run: _max_unpool2d(run) for run in _UNPOOLS},
    **FUSED_OPTIMIZERS,
    **{run: _quantile(run) for run in (torch.quantile, torch.Tensor.quantile)},
    **{run: _quantile(run) for run in (torch.nanquantile, torch.Tensor.nanquantile)},
    F.rrelu: _contiguous(F.rrelu, _not_in_place),
    torch.rrelu: _contiguous(torch.rrelu, _without_out),
    F.logsigmoid: _contiguous(F.logsigmoid, _on_cpu),
    operator.pow: _contiguous(operator.pow, _number_to_tensor),
    torch.pow: _contiguous(torch.pow, lambda base, *args, out=None, **kwargs: out is None and _number_to_tensor(base)),
    torch.float_power: _contiguous(
        torch.float_power, lambda base, *args, out=None, **kwargs: out is None and _number_to_tensor(base)
    ),
    torch.Tensor.__rpow__: _contiguous(torch.Tensor.__rpow__, lambda exponent, base: _number_to_tensor(base)),
    torch.isin: _contiguous(torch.isin, _without_out),
    torch.angle: _contiguous(torch.angle, lambda input, out=None: out is None and _of_complex(input)),
    torch.Tensor.angle: _contiguous(torch.Tensor.angle, _of_complex),
}
