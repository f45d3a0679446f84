"""Wrapper subclasses in the style of quantization libraries, for the programs of ``tensor_kinds``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


class Int8Weight(torch.Tensor):
    """A matrix as int8 with a scale for each row, as libraries for quantization make them."""

    rows: torch.Tensor
    scales: torch.Tensor

    @staticmethod
    def __new__(cls, rows: torch.Tensor, scales: torch.Tensor) -> Int8Weight:
        return torch.Tensor._make_wrapper_subclass(cls, rows.shape, dtype=scales.dtype, device=rows.device)

    def __init__(self, rows: torch.Tensor, scales: torch.Tensor) -> None:
        self.rows, self.scales = rows, scales

    @classmethod
    def of(cls, weight: torch.Tensor) -> Int8Weight:
        scales = weight.abs().amax(1) / 127
        return cls((weight / scales[:, None]).round().to(torch.int8), scales)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["rows", "scales"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], meta: None, size: Any, stride: Any) -> Int8Weight:
        return cls(inner["rows"], inner["scales"])

    def dequantize(self) -> torch.Tensor:
        return self.rows.to(self.scales.dtype) * self.scales[:, None]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default, torch.ops.aten.alias.default):
            return cls(func(args[0].rows), func(args[0].scales))
        return func(*[x.dequantize() if isinstance(x, cls) else x for x in args], **(kwargs or {}))


class Int8Linear(Int8Weight):
    """The same, with a linear layer of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            x, weight, *bias = args
            product = x.reshape(-1, x.shape[-1]) @ weight.rows.t().to(x.dtype) * weight.scales
            return product + bias[0] if bias else product
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Packed4(torch.Tensor):
    """A matrix of 4-bit numbers, two in a byte, with a scale and a zero point for each group of a row."""

    packed: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    group: int

    @staticmethod
    def __new__(cls, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int) -> Packed4:
        size = (packed.shape[0], packed.shape[1] * 2)
        return torch.Tensor._make_wrapper_subclass(cls, size, dtype=scales.dtype, device=packed.device)

    def __init__(self, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int) -> None:
        self.packed, self.scales, self.zeros, self.group = packed, scales, zeros, group

    @classmethod
    def of(cls, weight: torch.Tensor, group: int = 4) -> Packed4:
        parts = weight.detach().unflatten(1, (-1, group))
        zeros = parts.amin(2)
        scales = ((parts.amax(2) - zeros) / 15).clamp(min=1e-6)
        whole = ((parts - zeros[..., None]) / scales[..., None]).round().to(torch.uint8).flatten(1)
        return cls(whole[:, ::2] * 16 + whole[:, 1::2], scales, zeros, group)

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, int]]:
        return ["packed", "scales", "zeros"], {"group": self.group}

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], meta: Any, size: Any, stride: Any) -> Packed4:
        return cls(inner["packed"], inner["scales"], inner["zeros"], meta["group"])

    def dequantize(self) -> torch.Tensor:
        whole = torch.stack([self.packed // 16, self.packed % 16], 2).flatten(1).unflatten(1, (-1, self.group))
        return (whole.to(self.scales.dtype) * self.scales[..., None] + self.zeros[..., None]).flatten(1)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func in (aten.detach.default, aten.clone.default, aten.alias.default):
            held = args[0]
            return cls(*map(func, (held.packed, held.scales, held.zeros)), held.group)
        if func is aten.copy_.default:
            for name in ("packed", "scales", "zeros"):
                getattr(args[0], name).copy_(getattr(args[1], name))
            return args[0]
        return func(*[x.dequantize() if isinstance(x, cls) else x for x in args], **(kwargs or {}))


class _DynamicLinear(torch.autograd.Function):
    """A product with quantized rows and a quantized weight, whose gradient passes by the rounding."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: TrainableInt8, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        scales = x.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
        product = (x / scales).round() @ weight.rows.to(x.dtype).t() * scales * weight.scales
        return product if bias is None else product + bias

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight.dequantize(), grad.t() @ x, grad.sum(0)


class TrainableInt8(Int8Weight):
    """Int8 weights with gradients of their own, as libraries for low-precision training make them."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            return _DynamicLinear.apply(args[0], args[1], args[2] if len(args) > 2 else None)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
