"""Models of usual sizes for a GPU, in bfloat16 without gradients: GPT-2 124M, BERT base, ResNet-50, MobileNetV3."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .programs import GPT

ModelAndInputs = tuple[nn.Module, tuple[torch.Tensor, ...]]


class _Empty(type):
    """A class each of whose attributes is another such class."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name, (), {})


class _Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes modules of the given packages; every attribute of them is an empty class."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        def attribute(name: str) -> type:
            if name.startswith("__") or name == "_C":
                raise AttributeError(name)
            return _Empty(name, (), {})

        module.__getattr__ = attribute  # type: ignore[method-assign]


@contextlib.contextmanager
def _image_packages() -> Iterator[None]:
    """timm imports torchvision and PIL for image transforms, which no model here uses; placeholders replace what is
    missing."""
    missing = tuple(name for name in ("torchvision", "PIL") if importlib.util.find_spec(name) is None)
    finder = _Placeholders(missing)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.partition(".")[0] in missing]:
            del sys.modules[name]


def make_nanogpt(
    batch: int = 4, time: int = 1024, vocab: int = 50304, layers: int = 12, d: int = 768, heads: int = 12
) -> ModelAndInputs:
    model = GPT(vocab, layers, d, heads, block=time)
    return model, (torch.randint(0, vocab, (batch, time)),)


def make_bert(batch: int = 8, time: int = 512, **config: int) -> ModelAndInputs:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(**config))
    return model, (torch.randint(0, model.config.vocab_size, (batch, time)),)


def make_timm(
    name: str, batch: int = 32, side: int = 224, constructor: str | None = None, **config: Any
) -> ModelAndInputs:
    """A model of timm with random weights, and `batch` images of `side` by `side` pixels.

    `config`: arguments of its constructor. Some models of timm fix arguments that would have to be chosen here, which
    raises TypeError; `constructor`, the name of a class in timm.models, is then called in place of the model `name`.
    """
    with _image_packages():
        import timm
    model = getattr(timm.models, constructor)(**config) if constructor else timm.create_model(name, **config)
    settle(model, torch.randn(8, 3, side, side))
    return model, (torch.randn(batch, 3, side, side),)


def settle(model: nn.Module, x: torch.Tensor) -> None:
    """Batch norms as training would leave them: weights that are not 0, and the statistics of a batch."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0, 0.1)
    if not norms:
        return
    with torch.no_grad():
        model.train()(x)


def make_resnet(**sizes: int) -> ModelAndInputs:
    return make_timm("resnet50", **sizes)


def make_mobilenet(**sizes: int) -> ModelAndInputs:
    return make_timm("mobilenetv3_large_100", **sizes)


GPU: dict[str, Callable[..., ModelAndInputs]] = {
    "nanoGPT 124M, 4x1024": make_nanogpt,
    "BERT base, 8x512": make_bert,
    "ResNet-50, 32x3x224x224": make_resnet,
    "MobileNetV3-large, 32x3x224x224": make_mobilenet,
}
SMALL: dict[str, dict[str, int]] = {  # sizes with which each of them runs anywhere
    "nanoGPT 124M, 4x1024": {"batch": 2, "time": 32, "vocab": 128, "layers": 2, "d": 64, "heads": 4},
    "BERT base, 8x512": {
        "batch": 2, "time": 32, "vocab_size": 128, "num_hidden_layers": 2, "hidden_size": 64,
        "num_attention_heads": 4, "intermediate_size": 128,
    },
    "ResNet-50, 32x3x224x224": {"batch": 2, "side": 32},
    "MobileNetV3-large, 32x3x224x224": {"batch": 2, "side": 32},
}  # fmt: skip


def on(device: str, dtype: torch.dtype, program: ModelAndInputs) -> ModelAndInputs:
    """The model in eval mode with its inputs, floating point ones as `dtype`."""
    model, args = program
    model = model.eval().to(device, dtype)
    return model, tuple(x.to(device, dtype) if x.is_floating_point() else x.to(device) for x in args)
