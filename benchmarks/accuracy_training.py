"""Models for `benchmarks.accuracy` that test what training adds: dropout, checkpoints, shared and frozen parameters,
regions of autocast, modules that are used twice, results that need no gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from .accuracy_blocks import Applied, ModelAndInputs, block, normal, register


def mlp(width: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


def dropped(*layers: nn.Module, shape: tuple[int, ...] = (4, 6, 16)) -> ModelAndInputs:
    body = nn.Sequential(*layers)
    return Applied(lambda self, x: self.body(x), body=body), {"x": normal(*shape)}


register("dropout", lambda: dropped(nn.Linear(16, 32), nn.Dropout(0.3), nn.GELU(), nn.Dropout(0.5)), stochastic=True)
register("dropout2d", lambda: dropped(nn.Conv2d(3, 8, 3), nn.Dropout2d(0.5), shape=(2, 3, 8, 8)), stochastic=True)
register("alpha_dropout", lambda: dropped(nn.Linear(16, 16), nn.AlphaDropout(0.3)), stochastic=True)
register("rrelu", lambda: dropped(nn.Linear(16, 16), nn.RReLU()), stochastic=True)


@block
def checkpointed() -> ModelAndInputs:
    """Half of it computed again in the backward."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.first, x, use_reentrant=False))  # type: ignore[operator]

    return Applied(run, first=mlp(), last=nn.Linear(16, 4)), {"x": normal(5, 16)}


@block
def used_twice() -> ModelAndInputs:
    layer = mlp()
    return Applied(lambda self, x: self.layer(F.relu(self.layer(x))) + x, layer=layer), {"x": normal(5, 16)}


@block
def tied() -> ModelAndInputs:
    table = nn.Embedding(30, 16)
    head = nn.Linear(16, 30, bias=False)
    head.weight = table.weight
    return Applied(lambda self, ids: self.head(self.body(self.table(ids))), table=table, head=head, body=mlp()), {
        "ids": torch.randint(0, 30, (2, 7))
    }


@block
def frozen() -> ModelAndInputs:
    """A frozen layer between layers that train, and a frozen norm."""
    first, middle, last = mlp(), mlp(), mlp()
    middle.requires_grad_(False)
    norm = nn.LayerNorm(16).requires_grad_(False)
    return Applied(lambda self, x: self.last(self.norm(self.middle(self.first(x)))), first=first, middle=middle,
                   last=last, norm=norm), {"x": normal(5, 16)}  # fmt: skip


@block
def frozen_batch_norm() -> ModelAndInputs:
    """Training with the statistics of inference."""
    norm = nn.BatchNorm2d(8)
    norm.train = lambda mode=True: norm  # type: ignore[method-assign]
    norm.training = False
    norm.running_var.copy_(torch.rand(8) + 0.5)  # type: ignore[union-attr]
    return Applied(lambda self, x: F.relu(self.norm(self.conv(x))), conv=nn.Conv2d(3, 8, 3), norm=norm), {
        "x": normal(2, 3, 9, 9)
    }


@block
def detached() -> ModelAndInputs:
    """A part without gradients, a result that is not differentiable, a parameter that is not used."""
    def run(self: Any, x: torch.Tensor) -> Any:
        y = self.first(x)
        with torch.no_grad():
            target = self.first(x.flip(0)).softmax(-1)
        z = self.last(y + target.detach())
        return z, z.argmax(-1), target, y.detach().mean()

    return Applied(run, first=mlp(), last=mlp(), unused=nn.Linear(3, 3)), {"x": normal(5, 16)}


@block
def autocast_off_inside() -> ModelAndInputs:
    """A region in float32 within autocast."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        with torch.autocast(x.device.type, enabled=False):
            y = (y.to(self.middle.weight.dtype) @ self.middle.weight).softmax(-1)
        return self.last(y.to(x.dtype))

    return Applied(run, first=mlp(), middle=nn.Linear(16, 16), last=mlp()), {"x": normal(5, 16)}


@block
def autocast_inside() -> ModelAndInputs:
    """A region in bfloat16 within a module; a weight used in both."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            low = self.layer(x)
            low = self.norm(self.conv(low[:, None]).squeeze(1)) if self.conv is not None else low
        return self.layer(x) + low.to(x.dtype)

    return Applied(run, layer=nn.Linear(16, 16), norm=nn.LayerNorm(16), conv=nn.Conv1d(1, 1, 3, padding=1)), {
        "x": normal(5, 16)
    }


@block
def running_buffer() -> ModelAndInputs:
    """A buffer that each call moves, and a count."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with torch.no_grad():
            self.average.mul_(0.9).add_(y.detach().mean(0).to(self.average.dtype), alpha=0.1)
            self.calls += 1
        return y - self.average

    model = Applied(run, layer=nn.Linear(16, 8))
    model.register_buffer("average", torch.zeros(8))
    model.register_buffer("calls", torch.zeros((), dtype=torch.long))
    return model, {"x": normal(5, 16)}


@block
def views_of_parameters() -> ModelAndInputs:
    """Slices and transposes of one parameter, an expanded one, and one that is only read through a view."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.packed.split(16, 0)
        y = F.linear(x, q) + x @ k.T + F.linear(x, v[:, ::1])
        return torch.cat([self.token.expand(len(x), -1, -1), y], 1) * self.scale.view(1, 1, -1)[..., :16]

    made = {"packed": normal(48, 16), "token": normal(1, 1, 16), "scale": normal(20)}
    return Applied(run, **{k: nn.Parameter(v) for k, v in made.items()}), {"x": normal(3, 5, 16)}


@block
def in_place() -> ModelAndInputs:
    """Activations and sums that write into their operands."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y += x
        y = F.relu(y, inplace=True)
        z = self.last(y).clone()
        z[:, :4] *= 2
        z[:, 4:].clamp_(min=0)
        return z

    return Applied(run, first=nn.Linear(16, 16), last=nn.Linear(16, 12)), {"x": normal(5, 16)}


@block
def masked_mean() -> ModelAndInputs:
    """Means over the elements that are not padding, as sentence encoders compute them."""
    def run(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        wide = mask.unsqueeze(-1).expand(y.size()).float()
        mean = torch.sum(y * wide, 1) / torch.clamp(wide.sum(1), min=1e-9)
        return F.normalize(mean, p=2, dim=1)

    mask = (torch.arange(6) < torch.tensor([[6], [3], [1]])).long()
    return Applied(run, layer=mlp()), {"x": normal(3, 6, 16), "mask": mask}


@block
def gathers() -> ModelAndInputs:
    """Reads and sums at positions: gather, index_select, scatter_add, index_add, take_along_dim."""
    def run(self: Any, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        rows = y.gather(1, at[..., None].expand(-1, -1, 16)) + y.index_select(1, at[0])
        summed = torch.zeros_like(y).scatter_add(1, at[..., None].expand(-1, -1, 16), y)
        return rows * summed.index_add(1, at[1], y) + torch.take_along_dim(y, at[..., None], 1)

    return Applied(run, layer=mlp()), {"x": normal(2, 5, 16), "at": torch.randint(0, 5, (2, 5))}


@block
def pad_and_concatenate() -> ModelAndInputs:
    """Shifted copies, concatenated and padded on one axis."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        both = torch.cat([F.pad(y[:, 1:], [0, 0, 0, 1]), y], 2)
        return torch.stack([both.flip(1), both.roll(1, 2)]).cumsum(2)

    return Applied(run, layer=nn.Linear(16, 16)), {"x": normal(2, 5, 16)}


@block
def quantized_straight_through() -> ModelAndInputs:
    """Rounding that the gradient does not see, and the nearest of a table of vectors."""
    def run(self: Any, x: torch.Tensor) -> Any:
        y = self.layer(x)
        distance = torch.cdist(y, self.table)
        nearest = F.embedding(distance.argmin(-1), self.table)
        loss = F.mse_loss(y, nearest.detach()) + 0.25 * F.mse_loss(y.detach(), nearest)
        return y + (nearest - y).detach(), loss

    return Applied(run, layer=mlp(), table=nn.Parameter(normal(8, 16))), {"x": normal(5, 16)}


@block
def gradient_penalty_free_norms() -> ModelAndInputs:
    """Norms and roots at which gradients are large, clamps and wheres that cut them."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        norm = y.norm(dim=-1, keepdim=True)
        z = torch.where(y > 0, y.clamp(min=1e-3).log(), y.abs().sqrt()) + y / (norm + 1e-6)
        return torch.logsumexp(z, -1) + z.std(-1) + z.amax(-1) + z.median(-1).values

    return Applied(run, layer=mlp()), {"x": normal(5, 16)}
