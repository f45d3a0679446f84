"""Models of libraries that `benchmarks.capture` measures if they are installed: diffusers, PEFT, PyTorch Geometric,
x-transformers and vit-pytorch, with random weights and small sizes.

    pip install diffusers peft accelerate torch_geometric x-transformers vit-pytorch
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .torchvision_stub import stub_torchvision

Case = Callable[[], tuple[nn.Module, dict[str, Any]]]
LIBRARIES: dict[str, Case] = {}


def _add(library: str, name: str, make: Case) -> None:
    """Register a case, if its library is installed."""

    def seeded() -> tuple[nn.Module, dict[str, Any]]:
        torch.manual_seed(0)
        return make()

    if importlib.util.find_spec(library) is not None:
        LIBRARIES[f"{library}/{name}"] = seeded


def _ids(*shape: int, high: int = 90) -> torch.Tensor:
    return torch.randint(1, high, shape)


# ---- diffusers ----
def _diffuser(
    name: str, model: str, sizes: dict[str, Any], inputs: Callable[[], dict[str, Any]], train: bool = False
) -> None:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        import diffusers

        return getattr(diffusers, model)(**sizes).train(train), inputs()

    _add("diffusers", name, make)


_UNET: dict[str, Any] = {
    "sample_size": 16, "in_channels": 4, "out_channels": 4, "block_out_channels": (16, 32), "layers_per_block": 1,
    "norm_num_groups": 8, "cross_attention_dim": 16, "attention_head_dim": 8,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}  # fmt: skip


def _noise() -> dict[str, Any]:
    return {
        "sample": torch.randn(2, 4, 16, 16),
        "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
    }


_diffuser("unet_condition", "UNet2DConditionModel", _UNET, _noise)
_diffuser("unet_condition_train", "UNet2DConditionModel", _UNET, _noise, True)
_diffuser("unet_condition_step_int", "UNet2DConditionModel", _UNET, lambda: {**_noise(), "timestep": 5})
_diffuser("unet_condition_tuple", "UNet2DConditionModel", _UNET, lambda: {**_noise(), "return_dict": False})
_diffuser(
    "unet_sdxl", "UNet2DConditionModel",
    {**_UNET, "addition_embed_type": "text_time", "addition_time_embed_dim": 8,
     "projection_class_embeddings_input_dim": 64, "transformer_layers_per_block": (1, 2),
     "use_linear_projection": True},
    lambda: {**_noise(), "added_cond_kwargs": {"text_embeds": torch.randn(2, 16), "time_ids": torch.rand(2, 6)}},
)  # fmt: skip
_diffuser(
    "unet_2d", "UNet2DModel",
    {"sample_size": 16, "block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8,
     "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
     "attention_head_dim": 8},
    lambda: {"sample": torch.randn(1, 3, 16, 16), "timestep": 10},
)  # fmt: skip
_diffuser(
    "unet_3d", "UNet3DConditionModel",
    {"sample_size": 8, "block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8,
     "cross_attention_dim": 16, "attention_head_dim": 8,
     "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
     "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D")},
    lambda: {"sample": torch.randn(1, 4, 2, 8, 8), "timestep": 10, "encoder_hidden_states": torch.randn(1, 5, 16)},
)  # fmt: skip
_VAE: dict[str, Any] = {
    "block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1, "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
}  # fmt: skip
_diffuser("vae", "AutoencoderKL", _VAE, lambda: {"sample": torch.randn(1, 3, 16, 16)})
_diffuser("vae_sampled", "AutoencoderKL", _VAE, lambda: {"sample": torch.randn(1, 3, 16, 16), "sample_posterior": True})
_diffuser(
    "vae_tiny", "AutoencoderTiny",
    {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8), "num_encoder_blocks": (1, 1),
     "num_decoder_blocks": (1, 1)},
    lambda: {"sample": torch.randn(1, 3, 16, 16)},
)  # fmt: skip
_diffuser(
    "vq",
    "VQModel",
    {"block_out_channels": (16,), "norm_num_groups": 8, "num_vq_embeddings": 12},
    lambda: {"sample": torch.randn(1, 3, 16, 16)},
)
_diffuser(
    "dit", "DiTTransformer2DModel",
    {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "sample_size": 8, "num_embeds_ada_norm": 10,
     "norm_num_groups": 4},
    lambda: {"hidden_states": torch.randn(1, 4, 8, 8), "timestep": torch.tensor([3]),
             "class_labels": torch.tensor([1])},
)  # fmt: skip
_diffuser(
    "pixart", "PixArtTransformer2DModel",
    {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "sample_size": 8, "cross_attention_dim": 16,
     "caption_channels": 12, "norm_num_groups": 4, "use_additional_conditions": False},
    lambda: {"hidden_states": torch.randn(1, 4, 8, 8), "timestep": torch.tensor([3]),
             "encoder_hidden_states": torch.randn(1, 5, 12),
             "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
)  # fmt: skip
_diffuser(
    "sd3", "SD3Transformer2DModel",
    {"sample_size": 8, "patch_size": 2, "in_channels": 4, "num_layers": 2, "attention_head_dim": 8,
     "num_attention_heads": 2, "joint_attention_dim": 16, "caption_projection_dim": 16, "pooled_projection_dim": 16,
     "out_channels": 4},
    lambda: {"hidden_states": torch.randn(1, 4, 8, 8), "encoder_hidden_states": torch.randn(1, 5, 16),
             "pooled_projections": torch.randn(1, 16), "timestep": torch.tensor([3])},
)  # fmt: skip
_diffuser(
    "flux", "FluxTransformer2DModel",
    {"patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
     "num_attention_heads": 2, "joint_attention_dim": 16, "pooled_projection_dim": 16, "axes_dims_rope": (4, 4, 8)},
    lambda: {"hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": torch.randn(1, 5, 16),
             "pooled_projections": torch.randn(1, 16), "timestep": torch.tensor([0.3]),
             "img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(5, 3)},
)  # fmt: skip
_diffuser(
    "cogvideox", "CogVideoXTransformer3DModel",
    {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8,
     "text_embed_dim": 8, "num_layers": 1, "sample_width": 8, "sample_height": 8, "sample_frames": 5,
     "max_text_seq_length": 8},
    lambda: {"hidden_states": torch.randn(1, 2, 4, 8, 8), "encoder_hidden_states": torch.randn(1, 8, 8),
             "timestep": torch.tensor([3])},
)  # fmt: skip
_diffuser(
    "sana", "SanaTransformer2DModel",
    {"patch_size": 1, "in_channels": 4, "out_channels": 4, "num_layers": 1, "attention_head_dim": 4,
     "num_attention_heads": 2, "num_cross_attention_heads": 2, "cross_attention_head_dim": 4,
     "cross_attention_dim": 8, "caption_channels": 8, "sample_size": 8},
    lambda: {"hidden_states": torch.randn(1, 4, 8, 8), "encoder_hidden_states": torch.randn(1, 5, 8),
             "timestep": torch.tensor([3])},
)  # fmt: skip
_diffuser(
    "wan", "WanTransformer3DModel",
    {"patch_size": (1, 2, 2), "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4,
     "text_dim": 16, "freq_dim": 32, "ffn_dim": 16, "num_layers": 1, "rope_max_seq_len": 32},
    lambda: {"hidden_states": torch.randn(1, 4, 2, 8, 8), "encoder_hidden_states": torch.randn(1, 5, 16),
             "timestep": torch.tensor([3])},
)  # fmt: skip
_diffuser(
    "ltx", "LTXVideoTransformer3DModel",
    {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 8, "cross_attention_dim": 16,
     "num_layers": 1, "caption_channels": 16},
    lambda: {"hidden_states": torch.randn(1, 8, 4), "encoder_hidden_states": torch.randn(1, 5, 16),
             "timestep": torch.tensor([3]), "encoder_attention_mask": torch.ones(1, 5), "num_frames": 2, "height": 2,
             "width": 2},
)  # fmt: skip
_diffuser(
    "lumina2", "Lumina2Transformer2DModel",
    {"sample_size": 16, "patch_size": 2, "in_channels": 4, "hidden_size": 24, "num_layers": 1, "num_refiner_layers": 1,
     "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 2, "axes_dim_rope": (4, 2, 2),
     "axes_lens": (64, 64, 64), "cap_feat_dim": 16},
    lambda: {"hidden_states": torch.randn(1, 4, 8, 8), "encoder_hidden_states": torch.randn(1, 5, 16),
             "timestep": torch.tensor([0.3]), "encoder_attention_mask": torch.ones(1, 5, dtype=torch.bool)},
)  # fmt: skip
_diffuser(
    "controlnet", "ControlNetModel",
    {k: v for k, v in _UNET.items() if k not in ("sample_size", "out_channels", "up_block_types")}
    | {"conditioning_embedding_out_channels": (8, 16)},
    lambda: {**_noise(), "controlnet_cond": torch.randn(2, 3, 32, 32)},
)  # fmt: skip
_diffuser(
    "prior", "PriorTransformer",
    {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1, "embedding_dim": 16, "num_embeddings": 5,
     "additional_embeddings": 4},
    lambda: {"hidden_states": torch.randn(1, 16), "timestep": torch.tensor([3]),
             "proj_embedding": torch.randn(1, 16), "encoder_hidden_states": torch.randn(1, 5, 16)},
)  # fmt: skip


# ---- PEFT ----
def _adapted(name: str, config: str, sizes: dict[str, Any], kind: str = "llama", train: bool = False) -> None:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        import peft
        import transformers

        if kind == "llama":
            made = transformers.LlamaForCausalLM(
                transformers.LlamaConfig(
                    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=2, vocab_size=99,
                )
            )  # fmt: skip
        else:
            made = transformers.T5ForConditionalGeneration(
                transformers.T5Config(
                    d_model=32, d_ff=48, d_kv=16, num_layers=1, num_heads=2, vocab_size=99,
                    decoder_start_token_id=0, pad_token_id=0,
                )
            )  # fmt: skip
        model = peft.get_peft_model(made, getattr(peft, config)(**sizes))
        inputs = {"input_ids": _ids(2, 7), "labels": _ids(2, 7)}
        return model.train(train), inputs

    _add("peft", name, make)


_TARGETS = {"target_modules": ["q_proj", "v_proj"]}
_adapted("lora", "LoraConfig", {"r": 4, **_TARGETS})
_adapted("lora_train", "LoraConfig", {"r": 4, "lora_dropout": 0.1, **_TARGETS}, train=True)
_adapted("lora_rslora_bias", "LoraConfig", {"r": 4, "use_rslora": True, "bias": "lora_only", **_TARGETS})
_adapted("dora", "LoraConfig", {"r": 4, "use_dora": True, **_TARGETS})
_adapted("dora_train", "LoraConfig", {"r": 4, "use_dora": True, **_TARGETS}, train=True)
_adapted("lora_embedding", "LoraConfig", {"r": 4, "target_modules": ["embed_tokens", "q_proj"]})
_adapted("lora_t5", "LoraConfig", {"r": 4, "target_modules": ["q", "v"], "task_type": "SEQ_2_SEQ_LM"}, "t5")
_adapted(
    "ia3", "IA3Config", {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}
)
_adapted("loha", "LoHaConfig", {"r": 4, **_TARGETS})
_adapted("lokr", "LoKrConfig", {"r": 4, **_TARGETS})
_adapted("adalora", "AdaLoraConfig", {"r": 4, "total_step": 10, **_TARGETS}, train=True)
_adapted("oft", "OFTConfig", {"oft_block_size": 8, **_TARGETS})
_adapted("boft", "BOFTConfig", {"boft_block_size": 4, **_TARGETS})
_adapted("vera", "VeraConfig", {"r": 4, **_TARGETS})
_adapted("hra", "HRAConfig", {"r": 4, **_TARGETS})
_adapted("fourierft", "FourierFTConfig", {"n_frequency": 8, **_TARGETS})
_adapted("ln_tuning", "LNTuningConfig", {"task_type": "CAUSAL_LM"})
_adapted("prompt_tuning", "PromptTuningConfig", {"num_virtual_tokens": 3, "task_type": "CAUSAL_LM"})
_adapted("prefix_tuning", "PrefixTuningConfig", {"num_virtual_tokens": 3, "task_type": "CAUSAL_LM"})
_adapted(
    "p_tuning", "PromptEncoderConfig", {"num_virtual_tokens": 3, "encoder_hidden_size": 8, "task_type": "CAUSAL_LM"}
)
_adapted("trainable_tokens", "TrainableTokensConfig", {"token_indices": [1, 2, 3], "target_modules": ["embed_tokens"]})


# ---- PyTorch Geometric ----
def _graph_layer(name: str, make_layer: Callable[[Any], nn.Module], more: Callable[[], dict[str, Any]] = dict) -> None:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        import torch_geometric.nn as tg

        inputs = {"x": torch.randn(8, 16), "edge_index": torch.randint(0, 8, (2, 20)), **more()}
        return make_layer(tg).eval(), inputs

    _add("torch_geometric", name, make)


def _edges(size: int = 4) -> dict[str, Any]:
    return {"edge_attr": torch.randn(20, size)}


_graph_layer("gcn_conv", lambda tg: tg.GCNConv(16, 8))
_graph_layer("gat_conv", lambda tg: tg.GATConv(16, 8, heads=2))
_graph_layer("gatv2_conv", lambda tg: tg.GATv2Conv(16, 8, heads=2, edge_dim=4), _edges)
_graph_layer("sage_conv", lambda tg: tg.SAGEConv(16, 8))
_graph_layer("sage_conv_max", lambda tg: tg.SAGEConv(16, 8, aggr="max"))
_graph_layer("gin_conv", lambda tg: tg.GINConv(nn.Linear(16, 8), train_eps=True))
_graph_layer("gine_conv", lambda tg: tg.GINEConv(nn.Linear(16, 8), edge_dim=4), _edges)
_graph_layer("transformer_conv", lambda tg: tg.TransformerConv(16, 8, heads=2))
_graph_layer("cheb_conv", lambda tg: tg.ChebConv(16, 8, K=3))
_graph_layer("tag_conv", lambda tg: tg.TAGConv(16, 8))
_graph_layer("arma_conv", lambda tg: tg.ARMAConv(16, 8))
_graph_layer("graph_conv", lambda tg: tg.GraphConv(16, 8))
_graph_layer("gated_graph_conv", lambda tg: tg.GatedGraphConv(16, num_layers=2))
_graph_layer("res_gated_graph_conv", lambda tg: tg.ResGatedGraphConv(16, 8))
_graph_layer("edge_conv", lambda tg: tg.EdgeConv(nn.Linear(32, 8)))
_graph_layer(
    "pna_conv",
    lambda tg: tg.PNAConv(16, 8, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([0, 3, 4, 1])),
)
_graph_layer("sg_conv", lambda tg: tg.SGConv(16, 8, K=2))
_graph_layer("appnp", lambda tg: tg.APPNP(K=3, alpha=0.1))
_graph_layer("lg_conv", lambda tg: tg.LGConv())
_graph_layer("film_conv", lambda tg: tg.FiLMConv(16, 8))
_graph_layer("general_conv", lambda tg: tg.GeneralConv(16, 8))
_graph_layer("rgcn_conv", lambda tg: tg.RGCNConv(16, 8, 3), lambda: {"edge_type": torch.randint(0, 3, (20,))})
_graph_layer("cg_conv", lambda tg: tg.CGConv(16, dim=4), _edges)
_graph_layer("super_gat_conv", lambda tg: tg.SuperGATConv(16, 8, heads=2))
_graph_layer("mf_conv", lambda tg: tg.MFConv(16, 8))
_graph_layer("gcn_model", lambda tg: tg.GCN(16, 8, num_layers=2, norm="batch_norm"))
_graph_layer("gat_model", lambda tg: tg.GAT(16, 8, num_layers=2, heads=2, jk="cat"))
_graph_layer("gin_model", lambda tg: tg.GIN(16, 8, num_layers=2, jk="lstm"))
_graph_layer("sage_model", lambda tg: tg.GraphSAGE(16, 8, num_layers=2))
_graph_layer("gen_conv", lambda tg: tg.GENConv(16, 16))
_graph_layer("sag_pooling", lambda tg: tg.SAGPooling(16))
_graph_layer("topk_pooling", lambda tg: tg.TopKPooling(16))


class _Pooled(nn.Module):
    """A graph network with pooling over the nodes of each graph of a batch."""

    def __init__(self, tg: Any, pool: str) -> None:
        super().__init__()
        self.conv, self.norm = tg.GCNConv(16, 8), tg.GraphNorm(8)
        self.pool = getattr(tg, pool)
        self.out = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.conv(x, edge_index), batch).relu()
        return self.out(self.pool(h, batch, 2))


def _batch() -> dict[str, Any]:
    return {"batch": torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])}


for _pool in ("global_mean_pool", "global_max_pool", "global_add_pool"):
    _graph_layer(_pool, lambda tg, pool=_pool: _Pooled(tg, pool), _batch)  # type: ignore[misc]


# ---- x-transformers and vit-pytorch ----
def _language_model(name: str, sizes: dict[str, Any], wrapper: dict[str, Any] | None = None) -> None:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        import x_transformers as xt

        layers = xt.Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, **sizes)
        model = xt.TransformerWrapper(num_tokens=90, max_seq_len=32, attn_layers=layers, **(wrapper or {}))
        return model.eval(), {"x": _ids(2, 9)}

    _add("x_transformers", name, make)


for _name, _sizes in {
    "plain": {}, "rotary": {"rotary_pos_emb": True}, "alibi": {"alibi_pos_bias": True}, "flash": {"attn_flash": True},
    "t5_bias": {"rel_pos_bias": True}, "rmsnorm_glu": {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True},
    "one_kv_head": {"attn_one_kv_head": True}, "qk_norm": {"attn_qk_norm": True}, "sandwich": {"sandwich_norm": True},
    "macaron": {"macaron": True}, "talking_heads": {"attn_pre_talking_heads": True},
    "gated_values": {"attn_gate_values": True}, "shift_tokens": {"shift_tokens": 1},
    "residual_gating": {"gate_residual": True}, "memory_kv": {"attn_num_mem_kv": 4},
    "dynamic_bias": {"dynamic_pos_bias": True},
    "sparse_topk": {"attn_sparse_topk": 4}, "softclamp": {"attn_softclamp_logits": True},
}.items():  # fmt: skip
    _language_model(_name, _sizes)
_language_model("memory_tokens", {}, {"num_memory_tokens": 2})


def _vision(name: str, module: str, cls: str, sizes: dict[str, Any], train: bool = False, image: str = "img") -> None:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        stub_torchvision()
        found = getattr(importlib.import_module(f"vit_pytorch.{module}"), cls)
        return found(**sizes).train(train), {image: torch.randn(2, 3, 32, 32)}

    _add("vit_pytorch", name, make)


_VIT: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "num_classes": 5,
    "dim": 16,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 32,
}
_vision("vit", "vit", "ViT", _VIT)
_vision("vit_train", "vit", "ViT", {**_VIT, "dropout": 0.1}, True)
_vision("simple_vit", "simple_vit", "SimpleViT", _VIT)
_vision("deepvit", "deepvit", "DeepViT", _VIT)
_vision("cait", "cait", "CaiT", {**_VIT, "cls_depth": 1})
_vision("parallel_vit", "parallel_vit", "ViT", {**_VIT, "num_parallel_branches": 2})
_vision(
    "cct",
    "cct",
    "CCT",
    {"img_size": 32, "embedding_dim": 16, "num_layers": 1, "num_heads": 2, "num_classes": 5, "n_conv_layers": 1},
    image="x",
)
_vision(
    "nest",
    "nest",
    "NesT",
    {
        "image_size": 32,
        "patch_size": 4,
        "num_classes": 5,
        "dim": 16,
        "heads": 2,
        "num_hierarchies": 2,
        "block_repeats": (1, 1),
    },
)
