"""Changes of a tensor object itself: `requires_grad`, `detach_()`, `.grad` and `.data`; also the construction of an
`nn.Parameter` from a tensor.

Each is a graph node that makes the same change to the real tensor, in program order.
"""

from __future__ import annotations

import torch
from torch import nn

from ...core.in_order import in_order, may_wait
from ...core.source import AttrSource
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar, tensor_and_args


@in_order
def requires_grad(tensor: torch.Tensor, mode: bool) -> torch.Tensor:
    return tensor.requires_grad_(mode)


@in_order
def detach(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach_()


@may_wait  # what reads `.grad` later gets the value from the capture
@in_order
def set_grad(tensor: torch.Tensor, grad: torch.Tensor | None) -> torch.Tensor:
    tensor.grad = grad
    return tensor


@in_order
def set_data(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    tensor.data = data
    return tensor


@in_order
def parameter(data: torch.Tensor, mode: bool) -> torch.Tensor:
    return nn.Parameter(data, mode)


def _mode(tx: Tracer, mode: Var, what: str) -> bool:
    if not mode.is_constant() or type(mode.constant()) is not bool:
        tx.graph_break("unsupported-object", f"{what} of anything but one known bool")
    return mode.constant()


@register(torch.Tensor, method="requires_grad_")
def _requires_grad_(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    tensor, args = tensor_and_args(args)
    arguments = (*args, *kwargs.values())
    mode = _mode(tx, arguments[0], ".requires_grad_()") if arguments else True
    if mode == tensor.fake.requires_grad:
        return tensor
    return tx.graph.call(requires_grad, [tensor, ConstVar(mode)], {})


@register(torch.Tensor, method="detach_")
def _detach_(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    tensor, args = tensor_and_args(args)
    return tx.graph.call(detach, [tensor], {})


register(torch.Tensor, setter="requires_grad")(_requires_grad_)


@register(torch.Tensor, setter="grad")
def _set_grad(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    tensor, (value,) = tensor_and_args(args)
    if not isinstance(value, TensorVar) and not (value.is_constant() and value.constant() is None):
        tx.raise_(TypeError, f"assigned grad expected to be a Tensor or None but got grad of type {value.describe()}")
    if tensor.source is not None:
        tx.rewritten[AttrSource(tensor.origin(), "grad")] = None
    tx.graph.call(set_grad, [tensor, value], {})
    tensor.grad = value
    return ConstVar(None)


@register(torch.Tensor, setter="data")
def _set_data(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    tensor, (value,) = tensor_and_args(args)
    if not isinstance(value, TensorVar):
        tx.graph_break("exception-in-traced-code", ".data set to something that is not a tensor")
    if value is not tensor:  # `module.to(dtype)` does this if nothing changes
        tx.graph.call(set_data, [tensor, value], {})
    return ConstVar(None)


@register(nn.Parameter)
def _parameter(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    named = dict(zip(("data", "requires_grad"), args, strict=False)) | kwargs
    data, mode = named.get("data"), named.get("requires_grad")
    if data is None or data.is_constant() and data.constant() is None:
        data = tx.graph.call(torch.empty, [ConstVar(0)], {})
    if not isinstance(data, TensorVar):
        tx.graph_break("exception-in-traced-code", "a parameter of something that is not a tensor")
    new = tx.graph.call(parameter, [data, ConstVar(True if mode is None else _mode(tx, mode, "a parameter"))], {})
    assert isinstance(new, TensorVar)
    new.cls = nn.Parameter
    return new


