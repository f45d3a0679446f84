"""Training programs of usual sizes for a GPU: modules that return the loss, without dropout so that losses can be
compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .programs_gpu import make_nanogpt, make_resnet

ModelAndInputs = tuple[nn.Module, tuple[torch.Tensor, ...]]


class WithLoss(nn.Module):
    """The cross-entropy of the logits `model(x)`, whose last dimension is the classes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(x).flatten(0, -2), targets.flatten())


class MaskedLM(nn.Module):
    """The loss of a model of transformers that computes it itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, labels=labels).loss


def train_gpt(batch: int = 8, **sizes: int) -> ModelAndInputs:
    model, (ids,) = make_nanogpt(batch=batch, **sizes)
    model.head.weight = model.tok.weight
    return WithLoss(model), (ids, ids.roll(-1, 1))


def train_bert(batch: int = 8, time: int = 512, **config: int) -> ModelAndInputs:
    from transformers import BertConfig, BertForMaskedLM

    chosen = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **config)
    ids = torch.randint(0, chosen.vocab_size, (batch, time))
    labels = ids.masked_fill(torch.rand(batch, time) > 0.15, -100)
    return MaskedLM(BertForMaskedLM(chosen)), (ids, labels)


def train_resnet(**sizes: int) -> ModelAndInputs:
    model, (images,) = make_resnet(**sizes)
    return WithLoss(model), (images, torch.randint(0, 1000, (len(images),)))


@dataclass(frozen=True)
class Program:
    """`make(**tiny)` is the same program with sizes that run anywhere."""

    make: Callable[..., ModelAndInputs]
    title: str
    tiny: dict[str, Any]


GPU = {
    "gpt": Program(
        train_gpt, "GPT 124M, 8x1024", {"batch": 2, "time": 32, "vocab": 128, "layers": 2, "d": 64, "heads": 4}
    ),
    "bert": Program(
        train_bert,
        "BERT base, 8x512",
        {
            "batch": 2, "time": 32, "vocab_size": 128, "num_hidden_layers": 2, "hidden_size": 64,
            "num_attention_heads": 4, "intermediate_size": 128,
        },
    ),
    "resnet": Program(train_resnet, "ResNet-50, 32x3x224x224", {"batch": 2, "side": 64}),
}  # fmt: skip
