"""More programs of ``tensor_kinds``: wrapper subclasses that are mutated, viewed, created, nested, swapped and trained.

Some arguments are tensors in a ``SimpleNamespace``, which is not a pytree node: such tensors require no gradient, so
that they may be written.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tensor_kinds_classes import Int8Weight
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint


def pair_of(*size: int) -> Any:
    return TwoTensor(torch.randn(*size), torch.randn(*size))


def _pair() -> list[Any]:
    return [pair_of(4, 6)]


def _pair_and_dense() -> list[Any]:
    return [pair_of(4, 6), torch.randn(4, 6)]


def _two_pairs() -> list[Any]:
    return [pair_of(4, 6), pair_of(4, 6)]


def _dense() -> list[Any]:
    return [torch.randn(4, 6)]


def _held() -> list[Any]:
    return [types.SimpleNamespace(x=pair_of(4, 6)), torch.randn(4, 6)]


def _nested() -> list[Any]:
    return [TwoTensor(pair_of(4, 6), pair_of(4, 6)), torch.randn(4, 6)]


def _nested_twice() -> list[Any]:
    return [TwoTensor(_nested()[0], _nested()[0])]


def _sharing() -> list[Any]:
    x = torch.randn(4, 6)
    return [TwoTensor(x, x.clone()), x]


def _shared() -> list[Any]:
    return _pair() * 2


# ---- writes


def _scaled(held: Any, x: torch.Tensor) -> Any:
    held.x.mul_(2)
    return held.x * x, held.x


def _overwritten(held: Any, x: torch.Tensor) -> Any:
    held.x.copy_(x.detach())
    return (held.x * x).sum()


def _rows_written(held: Any, x: torch.Tensor) -> Any:
    held.x[0].mul_(3)
    held.x.t()[1].add_(1)
    return held.x * x


def _part_written(held: Any, x: torch.Tensor) -> Any:
    held.x.a.mul_(2)
    return held.x * x


def _detached_written(t: torch.Tensor, x: torch.Tensor) -> Any:
    t.detach().mul_(2)
    return t * x


def _written_without_grad(t: torch.Tensor, x: torch.Tensor) -> Any:
    with torch.no_grad():
        t.mul_(2)
    return t * x


def _step(held: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        held.x.add_(x, alpha=-0.1)
    return held.x.sum()


def _view_written(t: torch.Tensor, x: torch.Tensor) -> Any:
    made = t * x
    made[1:].mul_(3)
    return made


def _written_after_view(t: torch.Tensor, x: torch.Tensor) -> Any:
    made = t * x
    rows = made[1:]
    made.mul_(3)
    return rows, made


def _indices_written(t: torch.Tensor, x: torch.Tensor) -> Any:
    made = t * 1
    made[x > 0] = 0
    made[:, 1] = 5
    made[0] += 1
    return made


def _data_replaced(held: Any, x: torch.Tensor) -> Any:
    held.x.data = (held.x * 2).detach()
    return held.x * x


def _part_replaced(held: Any, x: torch.Tensor) -> Any:
    held.x.a = held.x.a * 2
    return held.x * x


def _written_between_breaks(held: Any, x: torch.Tensor) -> Any:
    held.x.mul_(2)
    print(end="")
    held.x.add_(1)
    return held.x * x


def _out(t: torch.Tensor, x: torch.Tensor) -> Any:
    made = torch.empty_like(t)
    torch.mul(t.detach(), x.detach(), out=made)
    return made


class _Averaging(nn.Module):
    """A running average as a buffer of a wrapper subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", pair_of(4, 6))
        self.weight = nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> Any:
        self.average.mul_(0.9).add_(x.detach(), alpha=0.1)
        return x * self.weight - self.average


# ---- what is made, modes, modules


def _created(x: torch.Tensor) -> Any:
    made = TwoTensor(x, x * 2)
    return made, made.a, made.b + 1


def _created_of_views(x: torch.Tensor) -> Any:
    made = TwoTensor(x.t(), x.t() * 2)
    return made, made.stride()


def _created_of_one(x: torch.Tensor) -> Any:
    made = TwoTensor(x, x)
    return made * 2, made


def _created_and_written(x: torch.Tensor) -> Any:
    part = x.detach() * 1
    made = TwoTensor(part, part + 1)
    made.mul_(2)
    return made, part


def _parameter_created(x: torch.Tensor) -> Any:
    made = nn.Parameter(TwoTensor(x.detach() * 2, x.detach() + 1))
    return made * x, made


def _under_inference_mode(t: torch.Tensor, x: torch.Tensor) -> Any:
    with torch.inference_mode():
        return t * x


def _under_no_grad(t: torch.Tensor, x: torch.Tensor) -> Any:
    with torch.no_grad():
        made = t * x
        rows = t[1:]
    return made + 1, (t * x).requires_grad, rows


def _hooked(t: torch.Tensor, x: torch.Tensor) -> Any:
    made = t * x
    if made.requires_grad:
        made.register_hook(lambda gradient: gradient * 2)
    return made * 3


def _with_breaks(t: torch.Tensor, x: torch.Tensor) -> Any:
    made = t * 2
    print(end="")
    made = made + x
    print(end="")
    return made.t(), t


def _its_gradient(t: torch.Tensor, x: torch.Tensor) -> Any:
    if not t.requires_grad:
        return t * 1
    made = (t * x).sum()
    (gradient,) = torch.autograd.grad(made, t, retain_graph=True)
    return gradient * 2, made


def _swapped(held: Any, x: torch.Tensor) -> Any:
    other = types.SimpleNamespace(x=x.detach().clone())
    torch.utils.swap_tensors(held.x, other.x)
    return held.x * 2, other.x * 3


class _Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        weight = self.linear.weight.detach()
        self.linear.weight = nn.Parameter(TwoTensor(weight, weight * 2))

    def forward(self, x: torch.Tensor) -> Any:
        return F.gelu(self.norm(self.linear(x)))


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.first.weight = self.second.weight = nn.Parameter(pair_of(6, 6))

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(self.first(x).relu())


class _Adapter(nn.Module):
    """A frozen quantized weight, and a product of two small matrices that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 5)
        self.base.weight = nn.Parameter(Int8Weight.of(torch.randn(5, 6)), requires_grad=False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 5, bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.base(x) + self.up(self.down(x)) * 0.5


def _module(make: Callable[[], nn.Module]) -> Callable[[], list[Any]]:
    return lambda: [make(), torch.randn(4, 6)]


def _called(module: nn.Module, x: torch.Tensor) -> Any:
    return module(x)


def _written_views_of_input(t: torch.Tensor, x: torch.Tensor) -> Any:
    return t.t(), t.view(-1), t * x


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "argument scaled": (_scaled, _held),
    "argument overwritten": (_overwritten, _held),
    "rows of an argument written": (_rows_written, _held),
    "part of an argument written": (_part_written, _held),
    "argument detached and written": (_detached_written, _pair_and_dense),
    "argument written without gradients": (_written_without_grad, _pair_and_dense),
    "step of an optimizer": (_step, _held),
    "view written": (_view_written, _pair_and_dense),
    "written after a view": (_written_after_view, _pair_and_dense),
    "indices written": (_indices_written, _pair_and_dense),
    "data replaced": (_data_replaced, _held),
    "part replaced": (_part_replaced, _held),
    "written between breaks": (_written_between_breaks, _held),
    "out": (_out, _pair_and_dense),
    "buffer": (_called, _module(_Averaging)),
    "views of an argument": (_written_views_of_input, _pair_and_dense),
    "views of a result": (lambda t, x: (lambda y: (y, y.t(), y[0] * x[0]))(t * 2), _pair_and_dense),
    "views of all kinds": (
        lambda t: (t.view(2, 12), t.flatten(), t.reshape(24), t.unsqueeze(0), t.expand(2, 4, 6)), _pair
    ),
    "as_strided": (lambda t: (t * 2).as_strided((3, 2), (2, 1), 1) + 1, _pair),
    "as_strided of an argument": (lambda t: t.as_strided((3, 2), (2, 1), 1) * 2, _pair),
    "as_strided of an argument as result": (lambda t: t.as_strided((3, 2), (2, 1), 1), _pair),
    "unbound": (lambda t: (t * 2).unbind(0), _pair),
    "chunks of a result": (lambda t: (t * 2).chunk(2), _pair),
    "split argument": (lambda t: t.split(2), _pair),
    "detached": (lambda t: (t.detach(), t * 2), _pair),
    "copied": (lambda t: (t.clone(), t.contiguous()), _pair),
    "itself": (lambda t, x: (t, t, t.view_as(t)), _pair_and_dense),
    "parts exchanged": (lambda t, x: TwoTensor(t.b, t.a), _pair_and_dense),
    "parts exchanged and used": (lambda t, x: TwoTensor(t.b, t.a) * x, _pair_and_dense),
    "parts joined": (lambda t, x: torch.cat([t.a, t.b]) * 2, _pair_and_dense),
    "with breaks": (_with_breaks, _pair_and_dense),
    "in containers": (
        lambda d, x: {"a": d["t"][0] * x, "b": [d["t"][1], (d["t"][0], x)]},
        lambda: [{"t": _two_pairs()}, torch.randn(4, 6)],
    ),
    "under inference_mode": (_under_inference_mode, _pair_and_dense),
    "under no_grad": (_under_no_grad, _pair_and_dense),
    "hook": (_hooked, _pair_and_dense),
    "deepcopy": (lambda t, x: copy.deepcopy(t.detach()) * x, _pair_and_dense),
    "to float64": (lambda t, x: (t.to(torch.float64), t.double() * x), _pair_and_dense),
    "made of tensors": (_created, _dense),
    "made of views": (_created_of_views, _dense),
    "made of one tensor": (_created_of_one, _dense),
    "made and written": (_created_and_written, _dense),
    "parameter made": (_parameter_created, _dense),
    "its gradient": (_its_gradient, _pair_and_dense),
    "checkpoint": (
        lambda t, x: checkpoint(lambda a, b: (a * b).sin(), t, x, use_reentrant=False), _pair_and_dense
    ),
    "swapped with a tensor": (_swapped, _held),
    "rows": (lambda t, x: ([row * 2 for row in t], torch.stack(list(t)) * x), _pair_and_dense),
    "indices": (lambda t, x: (t[torch.tensor([0, 2])], t[:, [1, 3]] * x[:, :2], t[x > 0]), _pair_and_dense),
    "cumsum, sort, topk": (lambda t: (t.cumsum(0), t.sort(1), t.topk(2)), _pair),
    "max, min": (lambda t: (t.max(1), t.min(), t.argmax(1)), _pair),
    "norms": (lambda t, x: (F.layer_norm(t, (6,), x[0], x[1]), F.softmax(t, 0)), _pair_and_dense),
    "attributes": (
        lambda t: (t.shape, t.dtype, t.device, t.requires_grad, t.dim(), t.numel(), t.stride(), t * 2), _pair
    ),
    "a number of a part": (lambda t, x: x * t.a.sum().item(), _pair_and_dense),
    "comparison": (lambda t, x: ((t == t).a, t > x), _pair_and_dense),
    "new tensors like it": (
        lambda t, x: (torch.zeros_like(t) + x, torch.ones_like(t), t.new_zeros(3), torch.full_like(t, 2.0)),
        _pair_and_dense,
    ),
    "convolution": (lambda t, x: F.conv1d(t.view(1, 4, 6), x.view(2, 4, 3)), _pair_and_dense),
    "normed module": (_called, _module(_Norm)),
    "tied weights": (_called, _module(_Tied)),
    "adapter of a frozen weight": (_called, _module(_Adapter)),
    "four pairs": (lambda t: (t * 2).t().sum(0), _nested_twice),
    "views of a pair of pairs": (lambda t, x: (t.t(), t * x, t[1:]), _nested),
    "pair of pairs written": (lambda t, x: (t * x).mul_(2).add_(t), _nested),
    "two pairs": (lambda a, b: (a @ b.t(), a + b, a), _two_pairs),
    "the same twice": (lambda a, b: (a * b, a), _shared),
    "a part as argument": (lambda t, x: t * x, _sharing),
    "transposed parts": (
        lambda t: (t * 2, t.contiguous(), t.sum(0)), lambda: [TwoTensor(torch.randn(6, 4).t(), torch.randn(6, 4).t())]
    ),
    "empty": (lambda t: (t * 2, t.sum(), t.sum(0)), lambda: [pair_of(0, 6)]),
    "integers": (lambda t: (t * 2, t.sum(), t.float() / 2), lambda: [TwoTensor(torch.arange(6), torch.arange(6))]),
    "complex": (
        lambda t: (t * 2, t.sum(), t.real * 2),
        lambda: [TwoTensor(*(torch.randn(6, dtype=torch.complex64) for _ in range(2)))],
    ),
}  # fmt: skip
