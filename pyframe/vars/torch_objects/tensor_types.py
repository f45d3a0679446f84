"""torch's legacy tensor types such as `torch.FloatTensor`, each of which names a dtype and a device. No tensor's Python
class derives from them; `isinstance` answers from the tensor's metadata. Also models calls of these types and of
`torch.Tensor`."""

from __future__ import annotations

from typing import Any

import torch

from ..containers.sequence import SequenceVar, TupleVar
from ..objects.classes import ClassVar
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Handler, Kwargs, register
from ..tracer import Tracer
from .tensor import TensorVar, tensor_and_args

_TENSOR_TYPE = type(torch.FloatTensor)
_ON_CPU = (
    torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor, torch.ByteTensor, torch.CharTensor,
    torch.ShortTensor, torch.IntTensor, torch.LongTensor, torch.BoolTensor,
)  # fmt: skip


def is_tensor_type(cls: Any) -> bool:
    """Whether `cls` is one of the legacy tensor types."""
    return isinstance(cls, _TENSOR_TYPE)


def is_instance(tensor: torch.Tensor, cls: Any) -> bool:
    """`isinstance(x, cls)` for the tensor `x` whose fake tensor is `tensor`."""
    if tensor.is_conj() or tensor.is_neg() or torch._is_zerotensor(tensor):
        return False  # another dispatch key takes precedence
    device = "cuda" if cls.is_cuda else "xpu" if getattr(cls, "is_xpu", False) else "cpu"
    return bool((tensor.dtype, tensor.layout, tensor.device.type) == (cls.dtype, cls.layout, device))


@register(torch.typename)
def _typename(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return tx.inline(torch.typename, args, kwargs)


@register(torch.Tensor, method="type")
def _type(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    """`tensor.type(...)`, with classes replaced by their names, which generated graph code can contain."""
    tensor, args = tensor_and_args(args)

    def named(var: Var) -> Var:
        if not isinstance(var, ClassVar):
            return var
        if not is_tensor_type(var.value):
            return tx.graph_break("exception-in-traced-code", f"type() with the class {var.describe()}")
        return ConstVar(f"{var.value.__module__}.{var.value.__name__}")

    return tx.graph.call_method(
        "type", [tensor, *map(named, args)], {name: named(value) for name, value in kwargs.items()}
    )


def _is_data(value: Var) -> bool:
    """Whether `value` is a number of known value, or a list or tuple of such values."""
    if isinstance(value, SequenceVar):
        return all(map(_is_data, value.items))
    return value.python_type() in (bool, int, float, complex) and value.is_constant()


def has_alias(tensor: TensorVar) -> bool:
    """Whether `torch.Tensor(tensor)` is the alias that autograd records. Without gradients, eager makes a leaf of it
    that requires gradients if `tensor` does."""
    return torch.is_grad_enabled() or not tensor.fake.requires_grad


def _constructor(cls: Any) -> Handler:
    """The model of calling `torch.Tensor` or a legacy tensor type, with sizes or with lists of numbers."""

    def construct(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        typed = cls is not torch.Tensor
        if kwargs or tx.overrides.in_mode or torch._C._get_default_device() != "cpu":
            return tx.graph_break("unsupported-object", f"{cls.__name__}() with keywords or on another device")
        settings = {"dtype": ConstVar(cls.dtype if typed else torch.get_default_dtype()), "device": ConstVar("cpu")}
        if all(arg.python_type() is int for arg in args):
            return tx.graph.call(torch.empty, [TupleVar(args or [ConstVar(0)])], settings)
        if len(args) == 1 and args[0].python_type() is torch.Size:
            return tx.graph.call(torch.empty, args, settings)
        if len(args) == 1 and args[0].python_type() in (list, tuple) and _is_data(args[0]):
            return tx.graph.call(torch.tensor, args, settings)
        if not typed and len(args) == 1 and isinstance(args[0], TensorVar) and has_alias(args[0]):
            return tx.graph.call(torch.ops.aten.alias.default, args, {})
        return tx.graph_break("unsupported-object", f"{cls.__name__}() of what is neither sizes nor known numbers")

    return construct


for _cls in (torch.Tensor, *_ON_CPU):
    register(_cls)(_constructor(_cls))
