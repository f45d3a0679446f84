"""Functions of torch that are traced in terms of others: those that read the values of their arguments to check them,
which fake tensors do not have, those whose results torch's own tracing lays out otherwise than eager, and those that it
cannot make functional."""

from __future__ import annotations

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
    """F.one_hot; RuntimeError, as there, for a class that is negative or too large. On a GPU, where eager ends in an
    assertion of a kernel, IndexError, and the GPU can still be used."""
    if num_classes <= 0 or classes.dtype != torch.int64:
        return torch._C._nn.one_hot(classes, num_classes)
    if classes.is_cuda:
        rows = torch.eye(num_classes, dtype=torch.int64, device=classes.device)
        return torch.embedding(rows, classes)
    zeros = torch.zeros((*classes.shape, num_classes), dtype=torch.int64, device=classes.device)
    return zeros.scatter(-1, classes.unsqueeze(-1), 1)


def _select_scatter(x: torch.Tensor, src: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """torch.select_scatter. Unsupported where the result would have strides that leave holes, as those of `x` do."""
    if x.numel() and dense_order(x.shape, x.stride()) is None and not elements_overlap(x):
        raise Unsupported("a result is a copy with holes")
    return torch.select_scatter(x, src, dim, index)


def _max_unpool2d(run: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """F.max_unpool2d or its operator, whose kernel keeps channels last; torch's fake implementation forgets them."""

    def call(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = run(input, *args, **kwargs)
        if input.dim() != 4 or suggest_memory_format(input) is not torch.channels_last:  # noqa: PLR2004
            return result
        return result.contiguous(memory_format=torch.channels_last)

    return call


_UNPOOLS = (F.max_unpool2d, torch._C._nn.max_unpool2d, torch.ops.aten.max_unpool2d.default)
TRACED_AS: dict[Any, Callable[..., Any]] = {
    torch._C._nn.one_hot: _one_hot,
    torch.select_scatter: _select_scatter,
    torch.Tensor.select_scatter: _select_scatter,
    torch.ops.aten.select_scatter.default: _select_scatter,
    **{run: _max_unpool2d(run) for run in _UNPOOLS},
    **FUSED_OPTIMIZERS,
}
