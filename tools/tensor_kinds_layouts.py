"""Programs of ``tensor_kinds`` on images in channels-last layout, whose results must have the strides of eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def _image() -> list[Any]:
    return [torch.randn(2, 4, 6, 6).contiguous(memory_format=LAST)]


def _one_image() -> list[Any]:
    return [torch.randn(1, 4, 6, 6).contiguous(memory_format=LAST)]


def _one_channel() -> list[Any]:
    return [torch.randn(2, 1, 6, 6).contiguous(memory_format=LAST)]


def _volume() -> list[Any]:
    return [torch.randn(2, 4, 4, 6, 6).contiguous(memory_format=LAST_3D)]


def _image_with_holes() -> list[Any]:
    return [torch.randn(2, 6, 6, 8)[..., ::2].permute(0, 3, 1, 2)]


def _image_and_plain() -> list[Any]:
    return [*_image(), torch.randn(2, 4, 6, 6)]


class _Net(nn.Module):
    def __init__(self, memory_format: torch.memory_format = torch.contiguous_format) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.depthwise, self.up = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.to(memory_format=memory_format)

    def forward(self, x: torch.Tensor) -> Any:
        y = F.relu(self.norm(self.conv(x)))
        z = self.depthwise(y)
        pooled = F.max_pool2d(y, 2), F.avg_pool2d(y, 2), F.adaptive_avg_pool2d(y, 3)
        scaled = F.interpolate(y, scale_factor=2, mode="bilinear"), F.interpolate(y, scale_factor=2)
        return y, z, *pooled, *scaled, self.up(z), torch.cat([y, z], 1)


class _NormedNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.to(memory_format=LAST)

    def forward(self, x: torch.Tensor) -> Any:
        y = F.relu(self.norm(self.conv(x)) + x)
        return y, y.mean((2, 3)), y.flatten(1), y.permute(0, 2, 3, 1)


class _VolumeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up = nn.Conv3d(4, 8, 3, padding=1), nn.ConvTranspose3d(8, 4, 2, stride=2)
        self.to(memory_format=LAST_3D)

    def forward(self, x: torch.Tensor) -> Any:
        y = F.relu(self.conv(x))
        return y, F.max_pool3d(y, 2), F.avg_pool3d(y, 2), F.interpolate(y, scale_factor=2), self.up(y)


def _called(module: nn.Module, x: torch.Tensor) -> Any:
    return module(x)


def _pointwise(x: torch.Tensor) -> Any:
    return (
        x * 2, x.relu(), F.gelu(x), x > 0, x.clone(), torch.zeros_like(x), x.double(), F.dropout(x, 0.5, False),
        torch.empty_like(x).stride(), x.abs().sqrt(),
    )  # fmt: skip


def _with_plain(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        x + y, y + x, x * y[:, :1], y[:, :1] * x, torch.where(x > 0, x, y), torch.where(x > 0, y, x),
        torch.maximum(x, y), x + y[0], x + y[..., :1], torch.addcmul(y, x, y), torch.lerp(x, y, 0.3),
    )  # fmt: skip


def _moved(x: torch.Tensor) -> Any:
    return (
        x.flip(1), x.roll(1, 2), x.roll((1, 2), (1, 3)), F.pad(x, (1, 1, 1, 1)), F.pad(x, (1, 1, 1, 1), mode="reflect"),
        torch.cat([x, x], 1), torch.cat([x, x], 2), torch.stack([x, x]), x[:, 1:], x[:, :, ::2], x.transpose(1, 2),
        x.reshape(2, -1), x.repeat(1, 2, 1, 1), x.contiguous(), x.contiguous(memory_format=LAST), x.chunk(2, 1),
        F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.unfold(x, 2), x[torch.tensor([1, 0])],
        x.index_select(1, torch.tensor([1, 0])), x.masked_fill(x > 0, 0.0),
    )  # fmt: skip


def _reduced(x: torch.Tensor) -> Any:
    return (
        x.sum(1), x.mean((2, 3), keepdim=True), x.amax(1, keepdim=True), x.softmax(1), x.log_softmax(1), x.cumsum(1),
        x.argmax(1), x.std(1), x.norm(dim=1), F.normalize(x), x.max(1), x.sort(1), x.topk(2, 1),
        F.layer_norm(x, (6, 6)), F.group_norm(x, 2), F.instance_norm(x), x.logsumexp(1),
    )  # fmt: skip


def _pooled(x: torch.Tensor) -> Any:
    return (
        F.max_pool2d(x, 2), F.max_pool2d(x, 3, 1, 1, return_indices=True), F.avg_pool2d(x, 2),
        F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, 2),
    )  # fmt: skip


def _scaled(x: torch.Tensor) -> Any:
    modes = ("nearest", "bilinear", "bicubic", "area", "nearest-exact")
    return [F.interpolate(x, scale_factor=2, mode=mode) for mode in modes]


def _convolved(x: torch.Tensor) -> Any:
    w = torch.ones(4, 4, 3, 3) * torch.arange(3.0)
    return (
        F.conv2d(x, w), F.conv2d(x, w, padding=1, stride=2), F.conv2d(x, w[:, :1], groups=4), F.conv_transpose2d(x, w),
        F.conv2d(x, w.contiguous(memory_format=LAST)), F.conv2d(x, w[:, :, :1, :1]), F.conv2d(x, w, dilation=2),
    )  # fmt: skip


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "pointwise": (_pointwise, _image),
    "pointwise, one image": (_pointwise, _one_image),
    "pointwise, one channel": (_pointwise, _one_channel),
    "pointwise, with holes": (_pointwise, _image_with_holes),
    "with a plain image": (_with_plain, _image_and_plain),
    "moved": (_moved, _image),
    "reduced": (_reduced, _image),
    "reduced, with holes": (_reduced, _image_with_holes),
    "pooled": (_pooled, _image),
    "pooled, one image": (_pooled, _one_image),
    "pooled, with holes": (_pooled, _image_with_holes),
    "scaled": (_scaled, _image),
    "scaled, one channel": (_scaled, _one_channel),
    "convolved": (_convolved, _image),
    "convolved, one image": (_convolved, _one_image),
    "convolved, with holes": (_convolved, _image_with_holes),
    "module": (_called, lambda: [_Net(LAST), *_image()]),
    "module of plain weights": (_called, lambda: [_Net(), *_image()]),
    "module, plain image": (_called, lambda: [_Net(LAST), torch.randn(2, 4, 6, 6)]),
    "module in evaluation": (_called, lambda: [_Net(LAST).eval(), *_image()]),
    "module with batch norm": (_called, lambda: [_NormedNet(), *_image()]),
    "volumes": (_called, lambda: [_VolumeNet(), *_volume()]),
    "volumes, plain": (_called, lambda: [_VolumeNet(), torch.randn(2, 4, 4, 6, 6)]),
}
