"""The models of `benchmarks.distributed`, and how each kind of parallelism wraps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from .programs_training import train_resnet

Compile = Callable[[nn.Module], nn.Module]


class Attention(nn.Module):
    """Causal self-attention with separate projections, which tensor parallelism divides by heads."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        q, k, v = (f(x).view(batch, time, -1, self.head).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, -1))


class Block(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, head)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A GPT that returns the loss of the next tokens. Inputs: token ids and targets, [batch, time]."""

    def __init__(self, layers: int, width: int, head: int, vocab: int, time: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(time, width)
        self.blocks = nn.ModuleList([Block(width, head) for _ in range(layers)])
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.logits(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def make_gpt(tiny: bool) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    sizes = {"width": 64, "head": 16, "vocab": 128, "time": 16} if tiny else {
        "width": 1024, "head": 64, "vocab": 32000, "time": 1024
    }  # fmt: skip
    model = GPT(layers=2 if tiny else 8, **sizes)
    ids = torch.randint(0, sizes["vocab"], (2 if tiny else 8, sizes["time"]))
    return model, (ids, ids.roll(-1, 1))


def make_resnet(tiny: bool) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return train_resnet(**({"batch": 2, "side": 64} if tiny else {}))


@dataclass(frozen=True)
class Place:
    """Where a rank runs. `half`: products are computed in bfloat16."""

    rank: int
    world: int
    device: str

    @property
    def kind(self) -> str:
        return self.device.partition(":")[0]

    @property
    def half(self) -> bool:
        return self.kind == "cuda"


def with_ddp(model: nn.Module, compile: Compile, place: Place) -> nn.Module:
    return compile(DistributedDataParallel(model, gradient_as_bucket_view=True))


def with_fsdp(model: nn.Module, compile: Compile, place: Place) -> nn.Module:
    mesh = init_device_mesh(place.kind, (place.world,))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if place.half else MixedPrecisionPolicy()
    for block in getattr(model, "blocks", []):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return compile(fully_shard(model, mesh=mesh, mp_policy=policy))


def with_tensor_parallel(model: nn.Module, compile: Compile, place: Place) -> nn.Module:
    mesh = init_device_mesh(place.kind, (place.world,))
    columns = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    plan = {**columns, "attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return compile(model)


@dataclass(frozen=True)
class Kind:
    """A kind of parallelism. `split`: each rank has a batch of its own. `autocast`: half precision is autocast's;
    otherwise that of the parameters, or of FSDP's policy."""

    wrap: Callable[[nn.Module, Compile, Place], nn.Module]
    split: bool
    autocast: bool


KINDS = {
    "ddp": Kind(with_ddp, split=True, autocast=True),
    "fsdp2": Kind(with_fsdp, split=True, autocast=False),
    "tp": Kind(with_tensor_parallel, split=False, autocast=False),
}
PROGRAMS: dict[str, tuple[Callable[[bool], Any], tuple[str, ...]]] = {
    "gpt": (make_gpt, ("ddp", "fsdp2", "tp")),
    "resnet": (make_resnet, ("ddp",)),
}
