"""Models `copy.copy` and `copy.deepcopy` of tensors and parameters."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar, tensor_and_args


@register(torch.Tensor, method="__deepcopy__")
def _deepcopy(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`tensor.__deepcopy__(memo)`: a clone, or the copy that `memo` already contains."""
    tensor, args = tensor_and_args(args)
    fake, memo = tensor.fake, args[0]
    is_parameter = tensor.cls is torch.nn.Parameter
    known = tx.inline(_known, [tensor, memo], {}) if is_parameter or fake.is_leaf else ConstVar(None)
    if isinstance(known, TensorVar):
        return known
    if is_parameter:
        return tx.inline(_deepcopied_parameter, [tensor, memo], {})
    if fake.is_leaf and tensor.own_attributes(tx):
        return tensor.unsupported(tx, "deepcopy() of a tensor with attributes of its own")
    if fake.is_leaf and torch.empty_like(fake).stride() != fake.stride():
        return tensor.unsupported(tx, "deepcopy() of a tensor whose elements overlap or leave gaps")
    storage = ConstVar(fake.untyped_storage()._cdata)
    if memo.contains(tx, storage):
        return tensor.unsupported(tx, "deepcopy() after that of another tensor in the same memory")
    return tx.inline(_deepcopied, [tensor, memo, storage], {})


def _known(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
    return memo.get(id(tensor))


def _deepcopied(tensor: torch.Tensor, memo: dict[int, Any], storage: int) -> torch.Tensor:
    if not tensor.is_leaf:
        raise RuntimeError(_NOT_A_LEAF)
    result = tensor.detach().clone()
    if tensor.requires_grad:
        result.requires_grad_()
    if tensor.grad is not None:
        result.grad = tensor.grad.__deepcopy__(memo)
    memo[storage] = memo[id(tensor)] = result
    return result


def _deepcopied_parameter(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    result = torch.nn.Parameter(tensor.data.clone(), tensor.requires_grad)
    memo[id(tensor)] = result
    return result


@register(copy.copy)
def _copy(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`copy.copy`; of a tensor, a new tensor that shares the memory."""
    tensor = args[0] if len(args) == 1 else None
    if not isinstance(tensor, TensorVar):
        return tx.inline(copy.copy, args, kwargs)
    if tensor.own_attributes(tx):
        return tensor.unsupported(tx, "copy() of a tensor with attributes of its own")
    return tx.inline(_shared_parameter if tensor.cls is torch.nn.Parameter else _shared, args, {})


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _shared_parameter(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(tensor.detach(), tensor.requires_grad)


def _not_a_leaf() -> str:
    """torch's error message for copying a tensor that is not a leaf."""
    try:
        with torch.inference_mode(False), torch.enable_grad():  # independent of the modes of the first call
            torch.Tensor.__deepcopy__(torch.zeros((), requires_grad=True) + 1, {})
    except RuntimeError as error:
        return str(error)
    raise AssertionError("deepcopy of a tensor that is not a leaf did not fail")


_NOT_A_LEAF = _not_a_leaf()
