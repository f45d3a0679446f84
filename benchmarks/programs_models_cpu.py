"""The models of `benchmarks.models --suite cpu`: random weights, and sizes for one core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
TRAINED = 4  # the batch of training
SIDE = {"infer": 224, "train": 128}  # of images


class Fire(nn.Module):
    """The block of SqueezeNet."""

    def __init__(self, channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, expanded, 1), nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat((F.relu(self.one(x)), F.relu(self.three(x))), 1)


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool, Fire(64, 16, 64), Fire(128, 16, 64), pool, Fire(128, 32, 128),
        Fire(256, 32, 128), pool, Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
        nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def convolved(given: int, made: int) -> nn.Module:
    pair = (nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU())
    again = (nn.Conv2d(made, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU())
    return nn.Sequential(*pair, *again)


class UNet(nn.Module):
    """Three levels down and up."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(convolved(a, b) for a, b in zip([3, *sizes], sizes))
        self.middle = convolved(sizes[-1], 2 * sizes[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, 2) for n in reversed(sizes))
        self.joined = nn.ModuleList(convolved(2 * n, n) for n in reversed(sizes))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for up, block in zip(self.up, self.joined):
            x = block(torch.cat((kept.pop(), up(x)), 1))
        return self.head(x)


class Tagger(nn.Module):
    """Two layers of LSTM between an embedding and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(5000, 256), nn.LSTM(256, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 100)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


class Recommender(nn.Module):
    """As DLRM: dense features through an MLP, embeddings of 16 categories, products of all pairs, an MLP."""

    def __init__(self, tables: int = 16, rows: int = 20000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())
        self.register_buffer("places", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = torch.stack([x, *(t(categories[:, k]) for k, t in enumerate(self.tables))], 1)
        products = rows @ rows.transpose(1, 2)
        return self.top(torch.cat((x, products[:, self.places[0], self.places[1]]), 1))


def image(name: str, sized: bool = False, **settings: Any) -> Callable[[str], Made]:
    """A classifier of timm; `sized`: it is made for one size of images."""

    def make(mode: str) -> Made:
        import timm

        side = SIDE[mode]
        model = timm.create_model(name, **settings, **({"img_size": side} if sized else {}))
        return model, (torch.randn(TRAINED if mode == "train" else 1, 3, side, side),)

    return make


def plain(model: Callable[[], nn.Module]) -> Callable[[str], Made]:
    """A network for images that is defined here."""
    return lambda mode: (model(), (torch.randn(TRAINED if mode == "train" else 1, 3, SIDE[mode], SIDE[mode]),))


def bert(mode: str) -> Made:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return BertModel(config), (torch.randint(0, config.vocab_size, (1, 128)),)


def gpt2(mode: str) -> Made:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_layer=6, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return GPT2Model(config), (torch.randint(0, config.vocab_size, (1, 128)),)


def tagger(mode: str) -> Made:
    return Tagger(), (torch.randint(0, 5000, (8, 64)),)


def recommender(mode: str) -> Made:
    return Recommender(), (torch.randn(512, 13), torch.randint(0, 20000, (512, 16)))


MODELS: dict[str, Callable[[str], Made]] = {
    "BERT, 6 layers": bert, "GPT-2, 6 layers": gpt2, "ResNet-18": image("resnet18"), "ResNet-50": image("resnet50"),
    "MobileNetV3-large": image("mobilenetv3_large_100"), "SqueezeNet": plain(squeezenet),
    "ConvNeXt-T": image("convnext_tiny"), "ViT-S/16": image("vit_small_patch16_224", sized=True),
    "EfficientNet-B0": image("efficientnet_b0"), "LSTM": tagger, "UNet": plain(UNet),
    "Mixer-S/16": image("mixer_s16_224", sized=True), "DLRM": recommender, "VGG-11": image("vgg11"),
}  # fmt: skip


def results_of(out: Any) -> Sequence[torch.Tensor]:
    """The tensors of a model's result."""
    values = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else (out,)
    return [x for x in values if isinstance(x, torch.Tensor)]
