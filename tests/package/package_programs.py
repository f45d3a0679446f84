"""Functions and modules to package, each with arguments and fresh ones to call the package with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn


@dataclass
class Pair:
    left: torch.Tensor
    right: Any


class Named(NamedTuple):
    first: torch.Tensor
    second: Any


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 8))
        self.tied = self.layers[0].weight
        self.register_buffer("scale", torch.rand(8))
        self.plain = torch.rand(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.scale + self.plain + (x @ self.tied.t()).sum()


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8),
            nn.BatchNorm2d(8), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Counting(nn.Module):
    """Writes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x * self.total


def nested(x: torch.Tensor, options: dict[str, Any], n: int = 2) -> Any:
    y = x * n + options["shift"]
    parts = [y.relu(), (y.sum(-1), None, "text", 3)]
    return {"y": y, 5: parts, "pair": Pair(y.exp(), x), "named": Named(options["more"][0] - 1, True),
            "ordered": OrderedDict(a=y.mean())}  # fmt: skip


def views(x: torch.Tensor) -> Any:
    y = x.sin()
    return y, y.t(), y[1:, ::2], x[0]


def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2).add_(y)
    return x.sum()


def many_operators(x: torch.Tensor, index: torch.Tensor) -> Any:
    a = torch.sort(x, -1)
    b = torch.topk(x, 3)
    c = torch.cumsum(x, 0).softmax(-1)
    d = torch.linalg.solve(x @ x.t() + torch.eye(x.shape[0], device=x.device) * 9, x)
    e = torch.nn.functional.interpolate(x[None, None], scale_factor=2.0, mode="bilinear")
    f = torch.cat([x, x.flip(0)]).index_select(0, index)
    g = torch.stack(torch.split(x, 2, 1)[:2]).unfold(1, 2, 1)
    return a.values, a.indices, b, c, d, e, f, g, torch.fft.rfft(x).abs(), x.to(torch.bfloat16) @ x.t().bfloat16()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def constant_tensor(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3)


def of_onednn(x: torch.Tensor, w: torch.Tensor) -> Any:
    linear = torch.ops.mkldnn._linear_pointwise
    return linear(x, w, None, "none", [], ""), linear(x, w, None, "leaky_relu", [0.1], ""), linear(
        x, w, None, "hardtanh", [-0.5, 0.5], None)  # fmt: skip


def lookup(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table[index] * 2


def rand(*size: int) -> torch.Tensor:
    return torch.randn(size)


Made = tuple[tuple[Any, ...], dict[str, Any]]


def _options() -> dict[str, Any]:
    return {"shift": rand(5), "more": [rand(2)]}


def onednn() -> nn.Module:
    """Layers that are calls of oneDNN with an activation, numbers of which are arguments, or with a residual sum."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(32, 32, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.conv(x) + x).relu()

    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU6(), Residual(), nn.Flatten(), nn.Linear(1152, 64), nn.LeakyReLU(0.2),
        nn.Linear(64, 16), nn.GELU(),
    ).eval()  # fmt: skip


PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[], Made]]] = {
    "mlp": (lambda: Mlp().eval(), lambda: ((rand(6, 24),), {})),
    "conv": (lambda: ConvNet().eval(), lambda: ((rand(2, 3, 12, 12),), {})),
    "channels last": (
        lambda: ConvNet().eval(), lambda: ((rand(2, 3, 12, 12).to(memory_format=torch.channels_last),), {})
    ),
    "onednn": (onednn, lambda: ((rand(32, 3, 8, 8),), {})),
    "nested": (lambda: nested, lambda: ((rand(4, 5),), {"options": _options(), "n": 3})),
    "views": (lambda: views, lambda: ((rand(4, 6),), {})),
    "operators": (lambda: many_operators, lambda: ((rand(6, 6), torch.randint(12, (5,))), {})),
    "attention": (lambda: attention, lambda: (tuple(rand(1, 2, 16, 8) for _ in range(3)), {})),
    "constant": (lambda: constant_tensor, lambda: ((rand(2, 3),), {})),
    "transposed": (lambda: torch.tanh, lambda: ((rand(4, 6).t(),), {})),
    "scalar": (lambda: (lambda x: x * 2 + 1), lambda: ((torch.rand(()),), {})),
    "half": (lambda: (lambda x: (x.half() * 2).softmax(-1)), lambda: ((rand(3, 33),), {})),
    "empty": (lambda: (lambda x: (x * 2, x.sum())), lambda: ((rand(0, 3),), {})),
    "ints": (lambda: (lambda x, y: (x // y, x % 3, x > y)), lambda: (
        (torch.randint(9, (40,)), torch.randint(1, 9, (40,))), {})),
    "gru": (lambda: nn.GRU(8, 6, batch_first=True).eval(), lambda: ((rand(2, 5, 8),), {})),
    "operators of onednn": (lambda: of_onednn, lambda: ((rand(6, 8), rand(4, 8)), {})),
    "lookup": (lambda: lookup, lambda: ((rand(9, 4), torch.randint(9, (5,))), {})),
}  # fmt: skip
