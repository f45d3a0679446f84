"""The programs that the demo and the benchmarks run: a fused expression, a small GPT, BERT, an MLP."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * y + 1).softmax(-1)


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).split(d, dim=-1)
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A GPT in plain PyTorch.  Input: int64 token ids [batch, time]; output: logits [batch, time, vocab]."""

    def __init__(self, vocab: int = 512, layers: int = 6, d: int = 384, heads: int = 6, block: int = 256) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(block, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def make_fused() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    torch.manual_seed(0)
    return fused, (torch.randn(256, 1024), torch.randn(256, 1024))


def make_gpt() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return GPT().eval(), (torch.randint(0, 512, (1, 256)),)


def make_bert() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=6)
    return BertModel(config).eval(), (torch.randint(0, config.vocab_size, (2, 128)),)


def make_mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    layers = [m for _ in range(12) for m in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers).eval(), (torch.randn(8, 64),)


DEMO: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "gelu(x*y+1).softmax(-1)": make_fused,
    "GPT, 6 layers, d=384, T=256": make_gpt,
    "BERT, 6 layers, 2x128": make_bert,
}


def tensors(out: Any) -> list[torch.Tensor]:
    """The tensors of an output, in order (model outputs, tuples, dicts included)."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, dict):
        out = out.values()
    if isinstance(out, (list, tuple)) or hasattr(out, "__iter__") and not isinstance(out, str):
        return [t for item in out for t in tensors(item)]
    return []


def relative_error(got: Any, want: Any) -> float:
    """Largest |got - want| over the largest |want|, over all tensors.  Infinite when shapes or counts differ."""
    a, b = tensors(got), tensors(want)
    if len(a) != len(b) or any(x.shape != y.shape or x.dtype != y.dtype for x, y in zip(a, b)):
        return float("inf")
    errors = [
        ((x - y).abs().max() / y.abs().max().clamp_min(1e-12)).item() if y.numel() else 0.0
        for x, y in zip((t.double() for t in a), (t.double() for t in b))
    ]
    worst = max(errors, default=0.0)
    return worst if worst == worst else float("inf")


def mean_error(got: Any, want: Any, least: float = 0.0) -> float:
    """The largest ratio, over all tensors, of the norm of the difference to that of the expected value; dtypes may
    differ. `least`: tensors whose norm is a smaller share of the largest one are compared with that share of it: a
    gradient that is zero but for rounding, such as that of the bias of keys, has an error of any ratio to itself."""
    a, b = tensors(got), tensors(want)
    if len(a) != len(b) or any(x.shape != y.shape for x, y in zip(a, b)):
        return float("inf")
    norms = [t.double().norm().item() for t in b]
    floor = max(1e-12, least * max(norms, default=0.0))
    ratios = [(x.double() - y.double()).norm().item() / max(n, floor) for x, y, n in zip(a, b, norms)]
    return math.inf if any(map(math.isnan, ratios)) else max(ratios, default=0.0)
