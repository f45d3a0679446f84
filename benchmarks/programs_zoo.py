"""The models of `benchmarks.zoo`: usual sizes for a GPU, random weights, each with a batch of 1 and a large one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .programs_gpu import make_bert, make_nanogpt, make_timm
from .programs_training import MaskedLM, WithLoss

Made = tuple[nn.Module, dict[str, Any]]  # a model and its keyword arguments
CLASSES = 1000  # of images


@dataclass(frozen=True)
class Model:
    """`make(batch)` makes the model and the inputs of inference, `loss(batch)` a module whose result is the loss, and
    its inputs; `loss` is None if the model is not trained here.

    `batches`: of inference; `trained`: the batch of training; `shape`: what stands behind the batch in titles; `small`:
    arguments of both functions with which they run anywhere; `package`: what must be installed."""

    make: Callable[..., Made]
    loss: Callable[..., Made] | None
    batches: tuple[int, int]
    trained: int
    shape: str
    small: dict[str, Any] = field(default_factory=dict)
    package: str | None = None


def nanogpt(batch: int, **sizes: int) -> Made:
    model, (ids,) = make_nanogpt(batch, **sizes)
    model.head.weight = model.tok.weight
    return model, {"ids": ids}


def nanogpt_loss(batch: int, **sizes: int) -> Made:
    model, inputs = nanogpt(batch, **sizes)
    return WithLoss(model), {"x": inputs["ids"], "targets": inputs["ids"].roll(-1, 1)}


def bert(batch: int, **sizes: int) -> Made:
    model, (ids,) = make_bert(batch, **sizes)
    return model, {"input_ids": ids}


def image(name: str) -> tuple[Callable[..., Made], Callable[..., Made]]:
    """Inference and training of a classifier of timm."""

    def make(batch: int, **sizes: Any) -> Made:
        model, (x,) = make_timm(name, batch, **sizes)
        return model, {"x": x}

    def loss(batch: int, **sizes: Any) -> Made:
        model, inputs = make(batch, **sizes)
        return WithLoss(model), {**inputs, "targets": torch.randint(0, CLASSES, (batch,))}

    return make, loss


def of_transformers(model: str, config: str, fixed: dict[str, Any], chosen: dict[str, Any]) -> nn.Module:
    """A model of transformers by the names of its class and of that of its configuration."""
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**{**fixed, **chosen}))


def text(
    model: str, config: str, time: int, decoded: int = 0, **fixed: Any
) -> tuple[Callable[..., Made], Callable[..., Made]]:
    """Inference and training of a model of texts with `time` tokens, and `decoded` tokens of the decoder if it has
    one. It is trained on its own loss."""

    def made(batch: int, time: int, decoded: int, chosen: dict[str, Any]) -> tuple[Any, torch.Tensor, torch.Tensor]:
        module: Any = of_transformers(model, config, fixed, chosen)
        vocab = module.config.vocab_size
        return module, torch.randint(0, vocab, (batch, time)), torch.randint(0, vocab, (batch, decoded or time))

    def make(batch: int, time: int = time, decoded: int = decoded, **chosen: Any) -> Made:
        module, ids, target = made(batch, time, decoded, chosen)
        return module, {"input_ids": ids, **({"decoder_input_ids": target} if decoded else {})}

    def loss(batch: int, time: int = time, decoded: int = decoded, **chosen: Any) -> Made:
        module, ids, target = made(batch, time, decoded, chosen)
        return MaskedLM(module), {"ids": ids, "labels": target}

    return make, loss


def whisper(batch: int, frames: int = 3000, decoded: int = 64, **chosen: Any) -> Made:
    """Speech of 30 s as a spectrogram, and the tokens of the decoder."""
    fixed = {
        "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
        "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "use_cache": False,
    }  # fmt: skip
    module: Any = of_transformers("WhisperForConditionalGeneration", "WhisperConfig", fixed, chosen)
    ids = torch.randint(0, module.config.vocab_size, (batch, decoded))
    return module, {"input_features": torch.randn(batch, module.config.num_mel_bins, frames), "decoder_input_ids": ids}


GPT2 = text("GPT2LMHeadModel", "GPT2Config", 512, use_cache=False)
LLAMA = text(
    "LlamaForCausalLM", "LlamaConfig", 512, vocab_size=32000, hidden_size=1280, num_hidden_layers=24,
    num_attention_heads=20, num_key_value_heads=4, intermediate_size=3456, use_cache=False,
)  # fmt: skip
T5 = text(
    "T5ForConditionalGeneration", "T5Config", 512, 128, d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12,
    decoder_start_token_id=0, use_cache=False,
)  # fmt: skip
BERT_TRAINED = text("BertForMaskedLM", "BertConfig", 512)
DISTILBERT = text("DistilBertForMaskedLM", "DistilBertConfig", 128)

# Sizes of a model of texts that runs anywhere.
TEXT = {
    "time": 16, "vocab_size": 96, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
    "intermediate_size": 64,
}  # fmt: skip
WHISPER = {
    "frames": 60, "decoded": 8, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 96, "num_mel_bins": 16,
    "max_source_positions": 30, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip


def classifier(name: str, **small: Any) -> Model:
    return Model(*image(name), (1, 32), 32, "x3x224x224", {"side": 32, **small}, "timm")


ZOO: dict[str, Model] = {
    "nanoGPT 124M": Model(
        nanogpt, nanogpt_loss, (1, 8), 8, "x1024", {"time": 16, "vocab": 96, "layers": 2, "d": 32, "heads": 4}
    ),
    "BERT base": Model(bert, BERT_TRAINED[1], (1, 32), 8, "x512", TEXT, "transformers"),
    "ResNet-50": classifier("resnet50", layers=(1, 1, 1, 1)),
    "MobileNetV3-large": classifier("mobilenetv3_large_100"),
    "ViT-B/16": classifier("vit_base_patch16_224", img_size=32, embed_dim=32, depth=2, num_heads=4),
    "ConvNeXt-T": classifier("convnext_tiny", depths=(1, 1, 1, 1), dims=(16, 16, 32, 32)),
    "Swin-T": classifier(
        "swin_tiny_patch4_window7_224", img_size=64, side=64, window_size=4, embed_dim=16, depths=(2, 2),
        num_heads=(2, 4),
    ),
    "EfficientNet-B0": classifier("efficientnet_b0"),
    "GPT-2": Model(
        *GPT2, (1, 16), 8, "x512",
        {"time": 16, "vocab_size": 96, "n_layer": 2, "n_embd": 32, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2},
        "transformers",
    ),
    "Llama 0.5B": Model(*LLAMA, (1, 8), 4, "x512", {**TEXT, "num_key_value_heads": 2}, "transformers"),
    "T5 base": Model(
        *T5, (1, 16), 8, "x512+128",
        {"time": 16, "decoded": 8, "vocab_size": 96, "num_layers": 2, "d_model": 32, "d_kv": 8, "d_ff": 64,
         "num_heads": 4},
        "transformers",
    ),
    "DistilBERT": Model(
        *DISTILBERT, (1, 32), 32, "x128",
        {"time": 16, "vocab_size": 96, "n_layers": 2, "dim": 32, "n_heads": 4, "hidden_dim": 64},
        "transformers",
    ),
    "MLP-Mixer-B/16": classifier(
        "mixer_b16_224", constructor="MlpMixer", img_size=32, patch_size=16, embed_dim=32, num_blocks=2,
    ),
    "RegNetY-032": classifier("regnety_032"),
    "Whisper base": Model(whisper, None, (1, 16), 0, "x30s+64", WHISPER, "transformers"),
}  # fmt: skip
