"""Models of `torch.cov` and `torch.corrcoef`: traced where ATen's check of the number of observations is known to pass,
otherwise called as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..numbers.symint import is_number
from ..polyfills import covariance
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar


def _model(function: Callable[..., Any], polyfill: Callable[..., Any]) -> Handler:
    def run(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        correction = kwargs.get("correction", ConstVar(1))
        if len(args) != 1 or kwargs.keys() - {"correction"} or not _passes(args[0], correction):
            return tx.graph.call(function, args, kwargs)
        return tx.inline(polyfill, args, kwargs)

    return run


def _passes(tensor: Var, correction: Var) -> bool:
    """Whether there are more observations than the correction, so that ATen neither warns nor raises."""
    if not isinstance(tensor, TensorVar) or tensor.fake.dim() > 2 or tensor.fake.dtype is torch.bool:
        return False
    count = tensor.fake.numel() if tensor.fake.dim() < 2 else tensor.fake.shape[1]
    return is_number(correction) and type(slots.constant_or(correction, None)) is int and count > correction.constant()


for _function, _polyfill in ((torch.cov, covariance.cov), (torch.corrcoef, covariance.corrcoef)):
    register(_function)(_model(_function, _polyfill))
    register(torch.Tensor, method=_function.__name__)(_model(_function, _polyfill))
