"""Wrapper subclasses that inherit their constructor from another class of the program are created in the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import pyframe

aten = torch.ops.aten


class Scaled(torch.Tensor):
    """Integers and a scale per row; products and sums use the dequantized values."""

    qdata: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, qdata: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=scale.dtype, device=qdata.device)

    def __init__(self, qdata: torch.Tensor, scale: torch.Tensor) -> None:
        self.qdata, self.scale = qdata, scale

    @classmethod
    def quantize(cls, weight: torch.Tensor) -> Any:
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale)

    def __tensor_flatten__(self) -> Any:
        return ["qdata", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["qdata"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.detach.default, aten.alias.default, aten.clone.default, aten.t.default):
            return cls(func(args[0].qdata), func(args[0].scale))
        plain = [each.qdata * each.scale if isinstance(each, Scaled) else each for each in args]
        return func(*plain, **(kwargs or {}))


class Inherits(Scaled):
    """As quantized weights of libraries: operators skip `__torch_function__`, everything else is inherited."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class InheritsTwice(Inherits):
    def __init__(self, qdata: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__(qdata, scale * 2)


class Quantize(nn.Module):
    def forward(self, weight: torch.Tensor) -> Any:
        return Inherits.quantize(weight)


def made(x: torch.Tensor, w: torch.Tensor) -> Any:
    return x @ Inherits.quantize(w).t()


def made_from_parts(x: torch.Tensor, w: torch.Tensor) -> Any:
    made = InheritsTwice(w.to(torch.int8), w[:, :1] * 1)
    return x @ made.t(), made.scale


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [made, made_from_parts])
def test_instances_are_created_in_the_graph(program: Any, backend: str) -> None:
    fn = pyframe.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        args = torch.randn(2, 4), torch.randn(3, 4)
        torch.testing.assert_close(fn(*args), program(*args))


def test_a_parametrization_that_quantizes_is_one_graph() -> None:
    layer = nn.Linear(4, 3).requires_grad_(False)
    parametrize.register_parametrization(layer, "weight", Quantize(), unsafe=True)
    fn = pyframe.compile(layer, backend="eager", fullgraph=True)
    for _ in range(2):
        x = torch.randn(2, 4)
        torch.testing.assert_close(fn(x), layer(x))
        with torch.no_grad():
            layer.parametrizations.weight.original.mul_(2)  # type: ignore[union-attr, operator]


def test_an_inherited_constructor_that_is_replaced() -> None:
    def program(w: torch.Tensor) -> Any:
        return Inherits(w.to(torch.int8), w[:, :1] * 1).dtype, w + 1

    fn, w = pyframe.compile(program, backend="eager", fullgraph=True), torch.randn(3, 4)
    assert fn(w)[0] == torch.float32
    before = Scaled.__dict__["__new__"]

    def create(cls: Any, qdata: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=torch.float64, device=qdata.device)

    try:
        Scaled.__new__ = staticmethod(create)  # type: ignore[assignment]
        assert fn(w)[0] == program(w)[0] == torch.float64
    finally:
        Scaled.__new__ = before
    assert fn(w)[0] == torch.float32
