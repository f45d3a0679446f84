"""The patterns of `benchmarks.kernels --device cpu`: what programs compute between products and convolutions, and small
products with what follows. Each is a function and a maker of its arguments for `rows` x `columns` elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

SIZES = {"small": (64, 256), "medium": (512, 512), "large": (2048, 2048)}  # 16 thousand, 262 thousand, 4 million
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Pattern:
    """`make(rows, columns)` returns the arguments; `dtype` that of its floating-point tensors."""

    fn: Callable[..., Any]
    make: Callable[[int, int], tuple[torch.Tensor, ...]]
    dtype: torch.dtype = torch.float32

    def args(self, size: str) -> tuple[torch.Tensor, ...]:
        """The arguments of one size, the same in each call."""
        torch.manual_seed(0)
        made = self.make(*SIZES[size])
        return tuple(x.to(self.dtype) if x.dtype == torch.float32 else x for x in made)


# ---- arguments


def one(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(r, c),)


def two(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.randn(r, c)


def with_row(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.randn(c)


def with_rows(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.randn(c), torch.randn(c)


def two_with_rows(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), *with_rows(r, c)


def with_mask(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.rand(r, c) > 0.2


def with_targets(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.randint(0, c, (r,))


def images(r: int, c: int) -> tuple[torch.Tensor, ...]:
    """Images of 32 channels and side ** 2 pixels, `r * c` elements together."""
    side = 16 if r * c <= 1 << 18 else 64
    return (torch.randn(max(1, r * c // (32 * side * side)), 32, side, side),)


def images_with_channels(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return *images(r, c), torch.randn(32), torch.randn(32), torch.randn(32), torch.rand(32) + 0.5


def with_places(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.randint(0, c, (r, c))


def table(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(4 * r, c), torch.randint(0, 4 * r, (r,)), torch.randn(r, c)


def with_groups(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.randint(0, r // 4, (r,))


def heads(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(4, 8, r * c // 32 // 64, 64),)


def queries(r: int, c: int) -> tuple[torch.Tensor, ...]:
    time = r * c // 16 // 64
    return torch.randn(2, 8, time, 64), torch.randn(time, 64), torch.randn(time, 64)


def distinct(r: int, c: int) -> tuple[torch.Tensor, ...]:
    """Rows of 64 different elements."""
    return (torch.rand(r * c // 64, 64).argsort(-1).float() / 16,)


def integers(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(-128, 128, (r, c), dtype=torch.int8), torch.rand(r, 1)


def integer_weight(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(4, c), *integers(r, c)


def pixels(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(0, 256, (1, r, c // 4, 3), dtype=torch.uint8), torch.rand(3), torch.rand(3) + 0.5


def complex_numbers(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c // 2, dtype=torch.complex64), torch.randn(r, c // 2, dtype=torch.complex64)


def skinny(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(16, c), torch.randn(r, c), torch.randn(r)


def batched(r: int, c: int) -> tuple[torch.Tensor, ...]:
    batch = r * c // 64 // 64
    return torch.randn(batch, 64, 32), torch.randn(batch, 64, 32)


def points(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, 3), torch.randn(c, 3)


def state(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(r, c), torch.randn(r, c), torch.randn(r, c), torch.rand(r, c)


def counted(r: int, c: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 64, (r * c // 64,)),)


# ---- functions


def masked_softmax(x, mask):
    return torch.where(mask, x * 0.125, -1e9).softmax(-1)


def rms_norm(x, w):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


def residual_layer_norm(x, y, w, b):
    z = x + y
    return z, F.layer_norm(z, z.shape[-1:], w, b)


def dropout_residual(x, y):
    return F.dropout(x, 0.1, True) + y


def batch_norm_training(x, w, b, mean, var):
    return F.relu(F.batch_norm(x, None, None, w, b, True))


def batch_norm_inference(x, w, b, mean, var):
    return F.relu(F.batch_norm(x, mean, var, w, b, False))


def heads_merged(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) * 2


def cat_relu_split(x, y):
    left, right = torch.cat((x, y), -1).relu().chunk(2, 0)
    return left * 2, right + 1


def rotary(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def normalized_pixels(x, mean, std):
    return ((x.float() / 255 - mean) / std).permute(0, 3, 1, 2).contiguous()


def piecewise(x, y):
    z = torch.where(x > 0, x * y, torch.where(y > 0, x - y, x.abs()))
    return torch.where(z > 1, torch.log1p(z.clamp(min=0)), z).clamp(-2, 2)


def bmm_softmax(q, k):
    return (q @ k.transpose(1, 2) * 0.18).softmax(-1)


def adam(p, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def focal_loss(x, y):
    p, t = x.sigmoid(), (y > 0).to(x.dtype)
    loss = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return (loss * (1 - (p * t + (1 - p) * (1 - t))).pow(2)).mean()


def routing(x):
    values, experts = x.softmax(-1).topk(8)
    return values / values.sum(-1, keepdim=True), experts


def sums_of_groups(x, groups):
    return x.new_zeros(x.shape[0] // 4, x.shape[1]).index_add(0, groups, x.sin())


def distances(a, b):
    return (a[:, None] - b[None]).pow(2).sum(-1)


PATTERNS: dict[str, Pattern] = {
    "softmax": Pattern(lambda x: x.softmax(-1), one),
    "softmax, bf16": Pattern(lambda x: x.softmax(-1), one, BF16),
    "softmax over columns": Pattern(lambda x: x.softmax(0), one),
    "log_softmax": Pattern(lambda x: x.log_softmax(-1), one),
    "masked softmax": Pattern(masked_softmax, with_mask),
    "masked softmax, bf16": Pattern(masked_softmax, with_mask, BF16),
    "logsumexp": Pattern(lambda x: x.logsumexp(-1), one),
    "cross-entropy": Pattern(F.cross_entropy, with_targets),
    "cross-entropy, bf16": Pattern(lambda x, t: F.cross_entropy(x.float(), t), with_targets, BF16),
    "layer norm": Pattern(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), with_rows),
    "layer norm, bf16": Pattern(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), with_rows, BF16),
    "residual + layer norm": Pattern(residual_layer_norm, two_with_rows),
    "RMS norm": Pattern(rms_norm, with_row),
    "RMS norm, bf16": Pattern(rms_norm, with_row, BF16),
    "group norm + SiLU": Pattern(lambda x, w, b, m, v: F.silu(F.group_norm(x, 8, w, b)), images_with_channels),
    "batch norm (training) + ReLU": Pattern(batch_norm_training, images_with_channels),
    "batch norm (inference) + ReLU": Pattern(batch_norm_inference, images_with_channels),
    "bias + GELU": Pattern(lambda x, b: F.gelu(x + b), with_row),
    "bias + GELU, bf16": Pattern(lambda x, b: F.gelu(x + b), with_row, BF16),
    "SwiGLU": Pattern(lambda x, y: F.silu(x) * y, two),
    "SwiGLU, bf16": Pattern(lambda x, y: F.silu(x) * y, two, BF16),
    "sin, exp, tanh": Pattern(lambda x, y: torch.sin(x) * torch.exp(-y * y) + torch.tanh(x + y), two),
    "where chain": Pattern(piecewise, two),
    "dropout + residual": Pattern(dropout_residual, two),
    "focal loss": Pattern(focal_loss, two),
    "Adam": Pattern(adam, state),
    "row sum": Pattern(lambda x: x.sum(-1), one),
    "row sum, bf16": Pattern(lambda x: x.sum(-1), one, BF16),
    "column sum": Pattern(lambda x: x.sum(0), one),
    "column sum, bf16": Pattern(lambda x: x.sum(0), one, BF16),
    "mean square": Pattern(lambda x: x.square().mean(), one),
    "var_mean over rows": Pattern(lambda x: torch.var_mean(x, -1), one),
    "std over columns": Pattern(lambda x: x.std(0), one),
    "argmax over rows": Pattern(lambda x: x.argmax(-1), one),
    "max and argmax over columns": Pattern(lambda x: x.max(0), one),
    "cumsum over rows": Pattern(lambda x: x.cumsum(-1), one),
    "cumsum over columns": Pattern(lambda x: x.cumsum(0), one),
    "gather + sum": Pattern(lambda x, at: x.gather(1, at).sum(-1), with_places),
    "embedding + add": Pattern(lambda w, at, y: w[at] + y, table),
    "embedding + add, bf16": Pattern(lambda w, at, y: w[at] + y, table, BF16),
    "index_add of rows": Pattern(sums_of_groups, with_groups),
    "scatter_add": Pattern(lambda x, at: torch.zeros_like(x).scatter_add(1, at, x), with_places),
    "one_hot + mean": Pattern(lambda at: F.one_hot(at, 64).float().mean(0), counted),
    "transpose + add": Pattern(lambda x, y: x.t() + y.reshape(x.shape[1], x.shape[0]), two),
    "heads merged": Pattern(heads_merged, heads),
    "heads merged, bf16": Pattern(heads_merged, heads, BF16),
    "cat, ReLU, split": Pattern(cat_relu_split, two),
    "roll + flip": Pattern(lambda x: x.roll(3, -1) + x.flip(-1), one),
    "rotary": Pattern(rotary, queries),
    "rotary, bf16": Pattern(rotary, queries, BF16),
    "triangle": Pattern(lambda x: x.tril() * 2 + x.triu(1).exp(), one),
    "int8 dequantize": Pattern(lambda q, s: q.float() * s, integers),
    "pixels normalized": Pattern(normalized_pixels, pixels),
    "complex product, abs": Pattern(lambda a, b: (a * b + a.conj()).abs(), complex_numbers),
    "max pooling + ReLU": Pattern(lambda x: F.max_pool2d(x, 3, 2, 1).relu(), images),
    "average pooling": Pattern(lambda x: F.avg_pool2d(x, 2), images),
    "global average": Pattern(lambda x: F.hardswish(x).mean((2, 3)), images),
    "nearest upsampling": Pattern(lambda x: F.interpolate(x, scale_factor=2.0), images),
    "bilinear upsampling": Pattern(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), images),
    "sort of 64": Pattern(lambda x: x.sort(dim=-1, stable=True), distinct),
    "softmax, topk 8 of 64": Pattern(routing, distinct),
    "distances of points": Pattern(distances, points),
    "16 rows: product + bias + GELU": Pattern(lambda x, w, b: F.gelu(F.linear(x, w, b)), skinny),
    "16 rows: product + bias + GELU, bf16": Pattern(lambda x, w, b: F.gelu(F.linear(x, w, b)), skinny, BF16),
    "4 rows: product with int8 weight": Pattern(lambda x, q, s: x @ (q.float() * s).t(), integer_weight),
    "batched product + softmax": Pattern(bmm_softmax, batched),
}  # fmt: skip
