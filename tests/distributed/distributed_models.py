"""Small models of the distributed tests."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 16


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, WIDTH)
    )


class Residual(nn.Module):
    """A pre-norm block with a hidden layer."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """Some residual blocks in a row."""

    def __init__(self, depth: int = 3, width: int = WIDTH) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Residual(width) for _ in range(depth)])
        self.head = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class WithNorms(nn.Module):
    """A network with batch norm, whose buffers change, on vectors taken as small images."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 1, 4, 4)
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.norm2(self.second(x)))
        return self.head(x.mean((2, 3)))


class SometimesUnused(nn.Module):
    """Uses one of its two branches, by a number that Python decides, so that the other has no gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)
        self.branch = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.first(x) if self.branch == 0 else self.second(x)))


class Attention(nn.Module):
    """Causal self-attention over a sequence in the second dimension, with heads in the layout of tensor parallelism."""

    def __init__(self, width: int = WIDTH, heads: int = 4) -> None:
        super().__init__()
        self.size = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.size).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Transformer(nn.Module):
    """Two blocks of attention and a hidden layer on (batch, length, width)."""

    def __init__(self, depth: int = 2, width: int = WIDTH) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width)
        self.norm2, self.hidden = nn.LayerNorm(width), Hidden(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.hidden(self.norm2(x))


class Hidden(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))
