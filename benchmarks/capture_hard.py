"""Hand-written modules that are hard to capture: what library code and research code do around plain layers."""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

HARD: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {}


def case(make: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> Callable[[], tuple[nn.Module, dict[str, Any]]]:
    def seeded() -> tuple[nn.Module, dict[str, Any]]:
        torch.manual_seed(0)
        return make()

    HARD[make.__name__.strip("_")] = seeded
    return seeded


def _x(*shape: int) -> dict[str, Any]:
    return {"x": torch.randn(*(shape or (4, 8)))}


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.seen: list[torch.Tensor] = []
        self.first.register_forward_hook(self.see)
        self.second.register_forward_pre_hook(lambda module, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True)

    def see(self, module: nn.Module, args: Any, out: torch.Tensor) -> None:
        self.seen.append(out.mean())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.clear()
        return self.second(self.first(x)) + self.seen[0]


@case
def hooks() -> Any:
    return Hooked(), _x()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = parametrizations.weight_norm(nn.Linear(8, 8))
        self.b = parametrizations.spectral_norm(nn.Linear(8, 8))
        self.c = parametrizations.orthogonal(nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x)))


@case
def parametrized() -> Any:
    return Normed().eval(), _x()


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return (x - self.mean) / self.count


@case
def buffers() -> Any:
    return Counter(), _x()


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


@case
def checkpointed() -> Any:
    return Checkpointed(), _x()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Square.apply(x.sin()) + Square.apply(x.cos())


@case
def autograd_function() -> Any:
    return Custom(), _x()


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def energy(row: torch.Tensor) -> torch.Tensor:
            return self.net(row).sum()

        per_row = torch.func.vmap(torch.func.grad(energy))(x)
        swapped = torch.func.functional_call(self.net, {"weight": self.net.weight * 2}, (x,))
        return per_row, swapped


@case
def functional_transforms() -> Any:
    return Functional(), _x()


@dataclass
class Step:
    value: torch.Tensor
    notes: list[str] = field(default_factory=list)

    def then(self, fn: Callable[[torch.Tensor], torch.Tensor], note: str) -> Step:
        return Step(fn(self.value), [*self.notes, note])


class Pipeline(nn.Module):
    def forward(self, x: torch.Tensor) -> Step:
        step = Step(x)
        for name in ("relu", "tanh", "sigmoid"):
            step = step.then(getattr(torch, name), f"after {name}: {len(step.notes)}")
        return step


@case
def dataclasses() -> Any:
    return Pipeline(), _x()


Pair = namedtuple("Pair", ["left", "right"])


class Structured(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        table: OrderedDict[str, Any] = OrderedDict()
        for index, part in enumerate(x.chunk(4, dim=-1)):
            table.setdefault(f"part{index % 2}", []).append(Pair(part, part.sum()))
        merged = {name: torch.cat([p.left for p in pairs]) for name, pairs in table.items()}
        total = functools.reduce(lambda a, b: a + b.right, table["part0"], torch.zeros(()))
        return merged, total, sorted(merged, reverse=True)


@case
def containers() -> Any:
    return Structured(), _x()


class Generators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(i): nn.Linear(8, 8) for i in range(3)})

    def stages(self, x: torch.Tensor) -> Any:
        for name, layer in self.layers.items():
            x = layer(x)
            yield int(name), x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((out * index for index, out in self.stages(x) if index), start=torch.zeros(8))


@case
def generators() -> Any:
    return Generators(), _x()


class Modes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.linear(x)
        with torch.profiler.record_function("high"), contextlib.nullcontext():
            high = self.linear(x)
        with contextlib.suppress(KeyError):
            high = high + {}["missing"]
        return low, high, low.detach().float() - high


@case
def context_managers() -> Any:
    return Modes(), _x()


class Indexing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[..., ::2] = x[..., 1::2] * 2
        out[torch.arange(4), torch.tensor([0, 1, 2, 3])] += 1
        out[:, None, -1].mul_(3)
        rows, columns = x.shape
        out.view(-1)[: rows * columns // 2].add_(1)
        return torch.where(out > 0, out, torch.finfo(out.dtype).min).amax(dim=(0,), keepdim=True)


@case
def indexing() -> Any:
    return Indexing(), _x()


class TensorBranch(nn.Module):
    """Has to break the graph once: a branch on a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if y.sum() > 0:
            y = y + 1
        return y.cos()


@case
def data_dependent_branch() -> Any:
    return TensorBranch(), _x()


class Printing(nn.Module):
    """Has to break the graph in each turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            print(end="")
        return x


@case
def print_in_loop() -> Any:
    return Printing(), _x()


class Caught(nn.Module):
    def forward(self, x: torch.Tensor, scale: dict[str, float] | None = None) -> torch.Tensor:
        try:
            factor = (scale or {})["factor"]
        except KeyError as error:
            factor = float(len(str(error)))
        finally:
            x = x + 1
        return x * factor


@case
def exceptions() -> Any:
    return Caught(), _x()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gru = nn.LSTMCell(8, 8), nn.GRU(8, 8, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        out, last = self.gru(x)
        return out + state[0][:, None] + last[-1][:, None]


@case
def recurrent() -> Any:
    return Recurrent(), _x(2, 5, 8)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.layers(x, mask=mask)
        return self.attend(y, y, y, need_weights=True)


@case
def torch_transformer() -> Any:
    return Attention().train(), _x(2, 5, 8)


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding="same"), nn.BatchNorm2d(8), nn.SiLU(), nn.GroupNorm(2, 8), nn.Dropout2d(0.5),
            nn.ConvTranspose2d(8, 4, 2, stride=2), nn.InstanceNorm2d(4), nn.PReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.body(x), dim=-1)


@case
def convolutional_training() -> Any:
    return Norms().train(), _x(2, 3, 8, 8)
