"""Small models for `benchmarks.accuracy`: one or two layers that are typical of a class of architectures.

They cover variants of attention, norms over any axis, convolutions, layouts, pooling, recurrent layers, embeddings and
losses. `accuracy_training` has what training adds (dropout, checkpoints, frozen and tied parameters).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

ModelAndInputs = tuple[nn.Module, dict[str, Any]]
BLOCKS: dict[str, Callable[[], ModelAndInputs]] = {}


class Applied(nn.Module):
    """A function of a module's layers and the inputs as a module."""

    def __init__(self, fn: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.fn = fn
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, **inputs: Any) -> Any:
        return self.fn(self, **inputs)


def block(make: Callable[[], ModelAndInputs]) -> Callable[[], ModelAndInputs]:
    """Registers a function that makes a model and its keyword arguments."""
    return register(make.__name__.strip("_"), make)


def register(name: str, make: Callable[[], ModelAndInputs], stochastic: bool = False) -> Callable[[], ModelAndInputs]:
    """`stochastic`: keeps its dropout; the reference takes the numbers that eager drew."""

    def seeded() -> ModelAndInputs:
        torch.manual_seed(0)
        return make()

    seeded.stochastic = stochastic  # type: ignore[attr-defined]
    BLOCKS[name] = seeded
    return seeded


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


# ---- image models with depthwise convolutions, norms over channels, layer scale


class LayerNorm2d(nn.LayerNorm):
    """Over the channels of an image, which are the second axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.permute(0, 2, 3, 1)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    """The same written out, as in the first release of ConvNeXt."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXtBlock(nn.Module):
    """`conv_mlp`: products as convolutions of one tap, over channels first; else as linear layers, channels last."""

    def __init__(self, channels: int, conv_mlp: bool, kernel: int = 7, norm: type[nn.Module] = LayerNorm2d) -> None:
        super().__init__()
        self.conv_mlp = conv_mlp
        self.depthwise = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels)
        self.norm = norm(channels) if conv_mlp else nn.LayerNorm(channels)
        linear: Callable[..., nn.Module] = (lambda i, o: nn.Conv2d(i, o, 1)) if conv_mlp else nn.Linear
        self.up, self.down = linear(channels, 4 * channels), linear(4 * channels, channels)
        self.gamma = nn.Parameter(0.5 * torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(x)
        if self.conv_mlp:
            y = self.down(F.gelu(self.up(self.norm(y)))) * self.gamma.reshape(1, -1, 1, 1)
        else:
            y = self.gamma * self.down(F.gelu(self.up(self.norm(y.permute(0, 2, 3, 1)))))
            y = y.permute(0, 3, 1, 2)
        return x + y


def convnext(
    conv_mlp: bool, channels_last: bool = False, norm: type[nn.Module] = LayerNorm2d, width: int = 32
) -> ModelAndInputs:
    def stage(before: int, after: int, stride: int) -> list[nn.Module]:
        down = nn.Conv2d(before, after, stride, stride=stride)
        return [down, ConvNeXtBlock(after, conv_mlp, norm=norm), ConvNeXtBlock(after, conv_mlp, norm=norm)]

    body = nn.Sequential(*stage(3, width, 4), norm(width), *stage(width, 2 * width, 2))
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(2 * width), nn.Linear(2 * width, 10)]
    model = nn.Sequential(body, *head)
    x = normal(4, 3, 64, 64)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)  # type: ignore

    def loss(self: Any, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.model(x)
        return {"loss": F.cross_entropy(logits, labels, label_smoothing=0.1), "logits": logits}

    return Applied(loss, model=model), {"x": x, "labels": torch.arange(len(x))}


register("convnext_linear", lambda: convnext(False))
register("convnext_conv", lambda: convnext(True))
register("convnext_channels_last", lambda: convnext(True, channels_last=True))
register("convnext_linear_channels_last", lambda: convnext(False, channels_last=True))
register("convnext_channel_norm", lambda: convnext(True, norm=ChannelNorm))
register("convnext_odd_width", lambda: convnext(False, width=20))


@block
def inverted_residual() -> ModelAndInputs:
    """A MobileNet block with squeeze and excitation."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return x + self.project(y * torch.sigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True))))))

    body = nn.Sequential(
        nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64), nn.Hardswish(),
        nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False), nn.BatchNorm2d(64), nn.ReLU6(),
    )  # fmt: skip
    layers = {"squeeze": nn.Conv2d(64, 16, 1), "excite": nn.Conv2d(16, 64, 1), "project": nn.Conv2d(64, 16, 1)}
    return Applied(run, body=body, **layers), {"x": normal(4, 16, 14, 14)}


# ---- convolutions

CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(8, 16, 3, padding=1), (2, 8, 20)),
    "conv1d_depthwise_causal": (lambda: nn.Conv1d(16, 16, 4, padding=3, groups=16), (2, 16, 20)),
    "conv1d_dilated_grouped": (lambda: nn.Conv1d(8, 8, 3, dilation=2, groups=2, stride=2), (2, 8, 21)),
    "conv2d_strided": (lambda: nn.Conv2d(3, 32, 3, stride=2, padding=1), (2, 3, 17, 19)),
    "conv2d_stem": (lambda: nn.Conv2d(3, 32, 7, stride=2, padding=3, bias=False), (2, 3, 32, 32)),
    "conv2d_patches": (lambda: nn.Conv2d(3, 32, 8, stride=8), (2, 3, 32, 32)),
    "conv2d_dilated": (lambda: nn.Conv2d(16, 16, 3, dilation=2, padding=2), (2, 16, 12, 12)),
    "conv2d_grouped": (lambda: nn.Conv2d(16, 32, 3, groups=4, padding=1), (2, 16, 12, 12)),
    "conv2d_depthwise_multiplier": (lambda: nn.Conv2d(16, 32, 3, groups=16, padding=1), (2, 16, 12, 12)),
    "conv2d_depthwise_strided": (lambda: nn.Conv2d(32, 32, 3, stride=2, groups=32, padding=1), (2, 32, 13, 13)),
    "conv2d_same_reflect": (lambda: nn.Conv2d(8, 8, 5, padding="same", padding_mode="reflect"), (2, 8, 12, 12)),
    "conv2d_circular": (lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), (2, 8, 12, 12)),
    "conv2d_pointwise": (lambda: nn.Conv2d(32, 48, 1), (2, 32, 9, 9)),
    "conv2d_unbatched": (lambda: nn.Conv2d(8, 8, 3), (8, 12, 12)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1), (2, 8, 10)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1), (2, 16, 7, 7)),
    "conv_transpose2d_grouped": (lambda: nn.ConvTranspose2d(16, 16, 4, stride=2, groups=4), (2, 16, 7, 7)),
    "conv3d": (lambda: nn.Conv3d(4, 8, 3, padding=1, stride=(1, 2, 2)), (2, 4, 5, 8, 8)),
    "conv3d_depthwise": (lambda: nn.Conv3d(8, 8, 3, padding=1, groups=8), (2, 8, 5, 8, 8)),
}


def convolved(layer: Callable[[], nn.Module], shape: tuple[int, ...]) -> ModelAndInputs:
    """The convolution between other layers."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x * 1.5 + 0.25)
        return F.gelu(y) + torch.sigmoid(y).mean(-1, keepdim=True)

    return Applied(run, layer=layer()), {"x": normal(*shape)}


for _name, (_layer, _shape) in CONVOLUTIONS.items():
    register(_name, lambda layer=_layer, shape=_shape: convolved(layer, shape))  # type: ignore[misc]


# ---- norms

NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer_norm": (lambda: nn.LayerNorm(48), (4, 10, 48)),
    "layer_norm_no_affine": (lambda: nn.LayerNorm(33, elementwise_affine=False), (4, 10, 33)),
    "layer_norm_two_axes": (lambda: nn.LayerNorm((6, 10)), (4, 3, 6, 10)),
    "layer_norm_no_bias": (lambda: nn.LayerNorm(48, bias=False), (2, 48)),
    "layer_norm_channels": (lambda: LayerNorm2d(24), (2, 24, 7, 7)),
    "channel_norm": (lambda: ChannelNorm(24), (2, 24, 7, 7)),
    "rms_norm": (lambda: nn.RMSNorm(48), (4, 10, 48)),
    "group_norm": (lambda: nn.GroupNorm(4, 16), (2, 16, 9, 9)),
    "group_norm_one": (lambda: nn.GroupNorm(1, 16), (2, 16, 9, 9)),
    "group_norm_sequence": (lambda: nn.GroupNorm(8, 16), (2, 16, 11)),
    "instance_norm": (lambda: nn.InstanceNorm2d(8, affine=True), (2, 8, 9, 9)),
    "instance_norm_running": (lambda: nn.InstanceNorm2d(8, affine=True, track_running_stats=True), (2, 8, 9, 9)),
    "batch_norm1d": (lambda: nn.BatchNorm1d(16), (12, 16)),
    "batch_norm1d_sequence": (lambda: nn.BatchNorm1d(16), (4, 16, 7)),
    "batch_norm2d": (lambda: nn.BatchNorm2d(8), (3, 8, 6, 6)),
    "batch_norm2d_average": (lambda: nn.BatchNorm2d(8, momentum=None), (3, 8, 6, 6)),
    "batch_norm2d_no_affine": (lambda: nn.BatchNorm2d(8, affine=False), (3, 8, 6, 6)),
    "batch_norm2d_no_running": (lambda: nn.BatchNorm2d(8, track_running_stats=False), (3, 8, 6, 6)),
    "batch_norm3d": (lambda: nn.BatchNorm3d(4), (2, 4, 3, 5, 5)),
    "local_response_norm": (lambda: nn.LocalResponseNorm(3), (2, 8, 5, 5)),
    "max_pool": (lambda: nn.MaxPool2d(3, stride=2, padding=1), (2, 8, 11, 11)),
    "max_pool_dilated": (lambda: nn.MaxPool2d(2, dilation=2, ceil_mode=True), (2, 8, 11, 11)),
    "max_pool1d": (lambda: nn.MaxPool1d(3), (2, 8, 11)),
    "max_pool3d": (lambda: nn.MaxPool3d(2), (2, 4, 4, 6, 6)),
    "avg_pool": (lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), (2, 8, 11, 11)),
    "avg_pool_ceil": (lambda: nn.AvgPool2d(2, ceil_mode=True), (2, 8, 11, 11)),
    "avg_pool1d": (lambda: nn.AvgPool1d(4, stride=2), (2, 8, 12)),
    "adaptive_avg_pool": (lambda: nn.AdaptiveAvgPool2d((3, 5)), (2, 8, 11, 11)),
    "adaptive_max_pool": (lambda: nn.AdaptiveMaxPool2d(4), (2, 8, 11, 11)),
    "lp_pool": (lambda: nn.LPPool2d(2, 3), (2, 4, 9, 9)),
    "upsample_nearest": (lambda: nn.Upsample(scale_factor=2), (2, 4, 5, 6)),
    "upsample_bilinear": (lambda: nn.Upsample(size=(9, 11), mode="bilinear"), (2, 4, 5, 6)),
    "upsample_bicubic": (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic", align_corners=True), (2, 4, 5, 6)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (2, 8, 5, 5)),
    "pixel_unshuffle": (lambda: nn.PixelUnshuffle(2), (2, 8, 6, 6)),
    "unfold": (lambda: nn.Unfold(3, padding=1, stride=2), (2, 4, 8, 8)),
    "fold": (lambda: nn.Fold((8, 8), 3, padding=1, stride=2), (2, 36, 16)),
}


def normed(layer: Callable[[], nn.Module], shape: tuple[int, ...], channels_last: bool = False) -> ModelAndInputs:
    """The layer with something to fuse before and behind; its parameters are not those that it begins with."""
    made = layer()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = normal(*shape)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    return Applied(lambda self, x: F.silu(self.layer(x * 1.5 + x.sin())) * 2, layer=made), {"x": x}


for _name, (_layer, _shape) in NORMS.items():
    register(_name, lambda layer=_layer, shape=_shape: normed(layer, shape))  # type: ignore[misc]
    if len(_shape) == 4:
        register(f"{_name}_channels_last", lambda layer=_layer, shape=_shape: normed(layer, shape, True))  # type: ignore


# ---- attention


class Attention(nn.Module):
    """Attention over `width` features: `mask(scores)` is added; `fused` calls the operator, else it is written out."""

    def __init__(
        self, fused: bool, mask: Callable[..., Any] | None, heads: int = 4, groups: int = 4, **rest: Any
    ) -> None:
        super().__init__()
        self.fused, self.mask, self.heads, self.groups, self.rest = fused, mask, heads, groups, rest
        width = 32
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, width * groups // heads) for _ in range(2))

    def split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        q = self.split(self.query(x), self.heads)
        k, v = self.split(self.key(x), self.groups), self.split(self.value(x), self.groups)
        mask = self.mask(q, **given) if self.mask else None
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.rest)
        else:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
            y = scores.softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).flatten(2))


def _lower(q: torch.Tensor) -> torch.Tensor:
    n = q.shape[-2]
    return torch.ones(n, n, dtype=torch.bool, device=q.device).tril()


def _lower_float(q: torch.Tensor) -> torch.Tensor:
    n = q.shape[-2]
    return torch.full((n, n), float("-inf"), device=q.device, dtype=q.dtype).triu(1)


def _lower_strict(q: torch.Tensor) -> torch.Tensor:
    """No token sees itself but the first."""
    n = q.shape[-2]
    mask = torch.ones(n, n, dtype=torch.bool, device=q.device).tril(-1)
    mask[0, 0] = True
    return mask


def _upper(q: torch.Tensor) -> torch.Tensor:
    return _lower(q).T


def _window(q: torch.Tensor) -> torch.Tensor:
    at = torch.arange(q.shape[-2], device=q.device)
    return (at[:, None] - at).abs() <= 3


def _everything(q: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1, 1, 1, q.shape[-2], device=q.device, dtype=q.dtype)


def _distance(q: torch.Tensor) -> torch.Tensor:
    """The bias of ALiBi, another slope for each head."""
    at = torch.arange(q.shape[-2], device=q.device)
    slopes = 2.0 ** -torch.arange(1, q.shape[1] + 1, device=q.device)
    return (-(at[:, None] - at).abs() * slopes[:, None, None]).to(q.dtype)


def _given(q: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    return padding[:, None, None, :].bool()


def _given_extended(q: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    return (1.0 - padding[:, None, None, :].to(q.dtype)) * torch.finfo(q.dtype).min


def _given_causal(q: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    return _lower(q) & padding[:, None, None, :].bool()


MASKS: dict[str, Callable[..., Any] | None] = {
    "plain": None, "lower": _lower, "lower_float": _lower_float, "lower_strict": _lower_strict, "upper": _upper,
    "window": _window, "everything": _everything, "distance": _distance, "padding": _given,
    "padding_extended": _given_extended, "padding_causal": _given_causal,
}  # fmt: skip


def attention(fused: bool, mask: str, **rest: Any) -> ModelAndInputs:
    inputs: dict[str, Any] = {"x": normal(2, 12, 32)}
    if mask.startswith("padding"):
        inputs["padding"] = (torch.arange(12) < torch.tensor([[12], [7]])).long()
    return Attention(fused, MASKS[mask], **rest), inputs


for _name in MASKS:
    register(f"attention_{_name}", lambda name=_name: attention(True, name))  # type: ignore[misc]
    register(f"attention_written_{_name}", lambda name=_name: attention(False, name))  # type: ignore[misc]
register("attention_causal", lambda: attention(True, "plain", is_causal=True))
register("attention_scale", lambda: attention(True, "padding", scale=0.5))
register("attention_grouped", lambda: attention(True, "lower", groups=2, enable_gqa=True))
register("attention_multi_query", lambda: attention(True, "plain", groups=1, enable_gqa=True, is_causal=True))
register("attention_dropout", lambda: attention(True, "lower", dropout_p=0.25), stochastic=True)


@block
def encoder() -> ModelAndInputs:
    """torch's own encoder, with padding."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    padding = torch.arange(12) >= torch.tensor([[12], [7]])
    return Applied(lambda self, x, padding: self.layers(x, src_key_padding_mask=padding), layers=layers), {
        "x": normal(2, 12, 32), "padding": padding,
    }  # fmt: skip


@block
def encoder_norm_first() -> ModelAndInputs:
    layer = nn.TransformerEncoderLayer(32, 4, 64, norm_first=True)
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Applied(lambda self, x: self.layers(x), layers=layers), {"x": normal(12, 2, 32)}


@block
def encoder_decoder() -> ModelAndInputs:
    def run(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.both(x, y, tgt_mask=nn.Transformer.generate_square_subsequent_mask(8, device=x.device))

    both = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    return Applied(run, both=both), {"x": normal(2, 12, 32), "y": normal(2, 8, 32)}


@block
def multihead_attention() -> ModelAndInputs:
    layer = nn.MultiheadAttention(32, 4, batch_first=True, kdim=16, vdim=24, add_bias_kv=True)
    return Applied(lambda self, q, k, v: self.layer(q, k, v), layer=layer), {
        "q": normal(2, 5, 32), "k": normal(2, 7, 16), "v": normal(2, 7, 24),
    }  # fmt: skip


@block
def rotary() -> ModelAndInputs:
    """Rotary embedding by halves, in float32 as models do under half precision."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        q = self.layer(x).unflatten(-1, (4, 16)).transpose(1, 2)
        inverse = 1.0 / 10000 ** (torch.arange(0, 16, 2, device=x.device).float() / 16)
        angles = torch.outer(torch.arange(q.shape[-2], device=x.device).float(), inverse)
        cos, sin = (torch.cat((f(angles), f(angles)), -1).to(q.dtype) for f in (torch.cos, torch.sin))
        half = torch.cat((-q[..., 8:], q[..., :8]), -1)
        return F.scaled_dot_product_attention(q * cos + half * sin, q, q, is_causal=True)

    return Applied(run, layer=nn.Linear(32, 64)), {"x": normal(2, 9, 32)}


@block
def relative_positions() -> ModelAndInputs:
    """Buckets of distances as an embedding, as in T5."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        at = torch.arange(x.shape[1], device=x.device)
        bias = self.table((at[:, None] - at).clamp(-4, 4) + 4).permute(2, 0, 1)[None]
        q, k, v = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in self.layer(x).chunk(3, -1))
        return (q @ k.mT + bias).softmax(-1, dtype=torch.float32).to(v.dtype) @ v

    return Applied(run, layer=nn.Linear(32, 96), table=nn.Embedding(9, 4)), {"x": normal(2, 9, 32)}


@block
def windows_shifted() -> ModelAndInputs:
    """Windows of a rolled image, a mask for each, as in Swin."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        y = x.roll((-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = (z.unflatten(-1, (2, -1)).transpose(1, 2) for z in self.layer(y).chunk(3, -1))
        region = torch.zeros(h, w, device=x.device)
        region[-2:] += 1
        region[:, -2:] += 2
        region = region.view(h // 4, 4, w // 4, 4).transpose(1, 2).reshape(-1, 16)
        mask = torch.where(region[:, None] == region[:, :, None], 0.0, -100.0).to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.repeat(b, 1, 1)[:, None])
        y = y.transpose(1, 2).reshape(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + self.out(y.roll((2, 2), (1, 2)))

    return Applied(run, layer=nn.Linear(16, 48), out=nn.Linear(16, 16)), {"x": normal(2, 8, 8, 16)}


# ---- sequences


def recurrent(kind: type[nn.RNNBase], **rest: Any) -> ModelAndInputs:
    layer = kind(12, 16, **rest)  # type: ignore[arg-type, call-arg]
    return Applied(lambda self, x: self.layer(x), layer=layer), {"x": normal(5, 3, 12)}


register("lstm", lambda: recurrent(nn.LSTM, num_layers=2))
register("lstm_bidirectional", lambda: recurrent(nn.LSTM, bidirectional=True, batch_first=True))
register("lstm_projected", lambda: recurrent(nn.LSTM, proj_size=8))
register("gru", lambda: recurrent(nn.GRU, num_layers=2, bidirectional=True))
register("rnn", lambda: recurrent(nn.RNN, nonlinearity="relu"))


@block
def embedding() -> ModelAndInputs:
    """With padding, twice, and once more as the matrix of the classes."""
    def run(self: Any, ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.table(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        logits = F.linear(F.gelu(self.layer(x)), self.table.weight)
        return {"loss": F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten()), "logits": logits}

    ids = torch.randint(0, 50, (3, 9))
    ids[:, 6:] = 0
    layers = {"table": nn.Embedding(50, 24, padding_idx=0), "position": nn.Embedding(9, 24), "layer": nn.Linear(24, 24)}
    return Applied(run, **layers), {"ids": ids, "labels": ids.masked_fill(ids == 0, -100)}


@block
def embedding_bag() -> ModelAndInputs:
    layer = nn.EmbeddingBag(20, 8, mode="mean")
    return Applied(lambda self, ids: self.layer(ids), layer=layer), {"ids": torch.randint(0, 20, (4, 6))}


@block
def selective_scan() -> ModelAndInputs:
    """A recurrence over time written as a loop, as in Mamba."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        step, b, c = self.layer(x).split([16, 4, 4], -1)
        decay = torch.exp(F.softplus(step)[..., None] * -torch.exp(self.a))
        state = x.new_zeros(x.shape[0], 16, 4)
        found = []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + (x[:, t, :, None] * b[:, t, None])
            found.append((state * c[:, t, None]).sum(-1))
        return torch.stack(found, 1) * F.silu(x)

    return Applied(run, layer=nn.Linear(16, 24), a=nn.Parameter(normal(16, 4))), {"x": normal(2, 6, 16)}


@block
def experts() -> ModelAndInputs:
    """Two of four experts for each token, gathered by weight."""
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        mask = F.one_hot(chosen, 4).to(x.dtype) * weights[..., None]
        each = torch.stack([expert(x) for expert in self.experts], -1)
        return (each * mask.sum(-2)[..., None, :]).sum(-1)

    parts = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(4))
    return Applied(run, router=nn.Linear(16, 4), experts=parts), {"x": normal(2, 5, 16)}


# ---- losses

LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "cross_entropy_smoothed": lambda y, t: F.cross_entropy(y, t, label_smoothing=0.2),
    "cross_entropy_ignored": lambda y, t: F.cross_entropy(y, t.masked_fill(t < 3, -100)),
    "cross_entropy_ignored_class": lambda y, t: F.cross_entropy(y, t, ignore_index=2, label_smoothing=0.1),
    "cross_entropy_weighted": lambda y, t: F.cross_entropy(y, t, weight=y.new_ones(10).cumsum(0), label_smoothing=0.1),
    "cross_entropy_sum": lambda y, t: F.cross_entropy(y, t, reduction="sum"),
    "cross_entropy_rows": lambda y, t: F.cross_entropy(y, t, reduction="none").square().mean(),
    "cross_entropy_pixels": lambda y, t: F.cross_entropy(y.view(2, 4, 10).mT, t.view(2, 4)),
    "cross_entropy_probabilities": lambda y, t: F.cross_entropy(y, y.detach().roll(1, 0).softmax(-1)),
    "nll": lambda y, t: F.nll_loss(F.log_softmax(y, -1), t, ignore_index=1),
    "mse": lambda y, t: F.mse_loss(y.mean(-1), t.to(y.dtype)),
    "smooth_l1": lambda y, t: F.smooth_l1_loss(y[:, 0], t.to(y.dtype)),
    "huber": lambda y, t: F.huber_loss(y[:, 0], t.to(y.dtype), delta=0.3),
    "bce": lambda y, t: F.binary_cross_entropy_with_logits(y[:, 0], (t % 2).to(y.dtype), pos_weight=y.new_tensor(2.0)),
    "kl": lambda y, t: F.kl_div(F.log_softmax(y, -1), y.roll(1, 1).softmax(-1), reduction="batchmean"),
    "cosine": lambda y, t: F.cosine_embedding_loss(y, y.roll(1, 0), (t % 2) * 2 - 1),
    "contrastive": lambda y, t: F.cross_entropy(F.normalize(y, dim=-1) @ F.normalize(y, dim=-1).T / 0.1, t % 8),
    "triplet": lambda y, t: F.triplet_margin_loss(y, y.roll(1, 0), y.roll(3, 0)),
    "margin": lambda y, t: F.multi_margin_loss(y, t),
}


def with_loss(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> ModelAndInputs:
    def run(self: Any, x: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(x)
        return {"loss": loss(y.float() if y.dtype != torch.float64 else y, target), "y": y}

    return Applied(run, layer=nn.Linear(12, 10)), {"x": normal(8, 12), "target": torch.arange(8)}


for _name in LOSSES:
    register(f"loss_{_name}", lambda name=_name: with_loss(LOSSES[name]))  # type: ignore[misc]
