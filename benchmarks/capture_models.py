"""The programs of `benchmarks.capture`: architectures of transformers, timm and other libraries with random weights and
small sizes, and hand-written modules that are hard to capture. `CASES[name]()` returns a module and its keyword
arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .capture_hard import HARD
from .capture_libraries import LIBRARIES
from .capture_transformers import TRANSFORMERS
from .torchvision_stub import stub_torchvision

Case = Callable[[], tuple[Any, dict[str, Any]]]


def _transformer(
    model: str, config: str, inputs: Callable[[], dict[str, Any]], sizes: dict[str, Any], train: bool = False
) -> Case:
    def make() -> tuple[Any, dict[str, Any]]:
        import transformers

        torch.manual_seed(0)
        module = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        return module.train(train), inputs()

    return make


def _timm(name: str, size: int, sizes: dict[str, Any], train: bool = False) -> Case:
    def make() -> tuple[Any, dict[str, Any]]:
        stub_torchvision()
        import timm

        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, **sizes).train(train)
        return model, {"x": torch.randn(2 if train else 1, 3, size, size)}

    return make


# name: (model, size of the image, arguments[, train])
_TIMM: dict[str, tuple[Any, ...]] = {
    "beit_tiny": ("beit_base_patch16_224", 32, {"img_size": 32, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "cait": ("cait_xxs24_224", 32, {"img_size": 32, "depth": 2}),
    "coat": ("coat_lite_tiny", 64, {"img_size": 64}),
    "convmixer": ("convmixer_768_32", 64, {}),
    "convnext_atto": ("convnext_atto", 64, {"depths": (1, 1, 1, 1)}),
    "crossvit": ("crossvit_tiny_240", 240, {}),
    "deit_tiny": ("deit_tiny_patch16_224", 32, {"img_size": 32, "depth": 2}),
    "densenet": ("densenet121", 64, {"block_config": (2, 2)}),
    "dpn": ("dpn48b", 64, {}),
    "efficientnet": ("efficientnet_b0", 64, {}),
    "eva": ("eva02_tiny_patch14_224", 28, {"img_size": 28, "depth": 2}),
    "ghostnet": ("ghostnet_100", 64, {}),
    "hrnet": ("hrnet_w18_small", 64, {}),
    "inception": ("inception_v3", 128, {}),
    "levit": ("levit_128s", 224, {}),
    "mixer": ("mixer_s32_224", 64, {"img_size": 64}),
    "mobilenetv3": ("mobilenetv3_small_100", 64, {}),
    "mobilevit": ("mobilevit_xxs", 64, {}),
    "nfnet": ("nfnet_l0", 64, {}),
    "pit": ("pit_ti_224", 224, {}),
    "pvt_v2": ("pvt_v2_b0", 64, {}),
    "regnetx": ("regnetx_002", 64, {}),
    "repvgg": ("repvgg_a0", 64, {}),
    "resmlp": ("resmlp_12_224", 64, {"img_size": 64}),
    "resnet18": ("resnet18", 64, {}),
    "resnest": ("resnest14d", 64, {}),
    "resnet18_train": ("resnet18", 64, {}, True),
    "rexnet": ("rexnet_100", 64, {}),
    "sknet": ("skresnet18", 64, {}),
    "swin_tiny": (
        "swin_tiny_patch4_window7_224",
        56,
        {"img_size": 56, "depths": (1, 1), "num_heads": (2, 4), "embed_dim": 16},
    ),
    "tnt": ("tnt_s_legacy_patch16_224", 32, {"img_size": 32, "depth": 2}),
    "twins": ("twins_svt_small", 64, {"img_size": 64}),
    "vgg11": ("vgg11", 64, {}),
    "visformer": ("visformer_tiny", 224, {}),
    "vit_tiny": ("vit_tiny_patch16_224", 32, {"img_size": 32, "depth": 2}),
    "vit_tiny_train": ("vit_tiny_patch16_224", 32, {"img_size": 32, "depth": 2}, True),
    "volo": ("volo_d1_224", 224, {}),
    "xcit": ("xcit_nano_12_p16_224", 32, {"img_size": 32, "depth": 2}),
}

CASES: dict[str, Case] = {
    **{f"hf/{name}": _transformer(*spec) for name, spec in TRANSFORMERS.items()},
    **{f"timm/{name}": _timm(*spec) for name, spec in _TIMM.items()},
    **{f"hard/{name}": case for name, case in HARD.items()},
    **LIBRARIES,
}
QUICK = (
    "hf/bert",
    "hf/gpt2",
    "hf/llama",
    "hf/t5",
    "hf/vit",
    "timm/resnet18",
    "timm/vit_tiny",
    *(f"hard/{n}" for n in HARD),
)
