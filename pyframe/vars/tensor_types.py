"""torch's classes that name a dtype and a device, such as torch.FloatTensor: no tensor is an instance of them as Python
classes go; what `isinstance` says depends on the tensor's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..core.tracer import Tracer
from .base import Var
from .const import ConstVar
from .klass import ClassVar
from .tensor import METHODS

_TENSOR_TYPE = type(torch.FloatTensor)


def is_tensor_type(cls: Any) -> bool:
    """Whether `cls` is one of those classes."""
    return isinstance(cls, _TENSOR_TYPE)


def is_instance(tensor: torch.Tensor, cls: Any) -> bool:
    """isinstance(tensor, cls) for the tensor of which `tensor` is the fake."""
    if tensor.is_conj() or tensor.is_neg() or torch._is_zerotensor(tensor):
        return False  # another dispatch key comes first
    device = "cuda" if cls.is_cuda else "xpu" if getattr(cls, "is_xpu", False) else "cpu"
    return bool((tensor.dtype, tensor.layout, tensor.device.type) == (cls.dtype, cls.layout, device))


def _type(tx: Tracer, tensor: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`tensor.type(...)`, with the class as its name, which the graph's code can say."""

    def named(var: Var) -> Var:
        cls = var.value if isinstance(var, ClassVar) else None
        return ConstVar(f"{cls.__module__}.{cls.__name__}") if cls is not None and is_tensor_type(cls) else var

    return tx.graph.call_method(
        "type", [tensor, *map(named, args)], {name: named(value) for name, value in kwargs.items()}
    )


METHODS["type"] = _type
