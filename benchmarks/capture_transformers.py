"""The architectures of transformers in `benchmarks.capture`: `TRANSFORMERS[name]` is the class of the model, the class
of its configuration, a function that makes the inputs, the arguments of the configuration, and whether it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {
    **TINY, "vocab_size": 99, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {**TINY, "image_size": 32, "patch_size": 8}


def _ids(batch: int = 2, length: int = 16) -> torch.Tensor:
    return torch.randint(3, 99, (batch, length))


def text() -> dict[str, Any]:
    return {"input_ids": _ids()}


def masked() -> dict[str, Any]:
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 12:] = 0
    return {"input_ids": _ids(), "attention_mask": mask}


def labelled() -> dict[str, Any]:
    ids = _ids()
    return {"input_ids": ids, "labels": ids.clone()}


def pair() -> dict[str, Any]:
    return {"input_ids": _ids(), "decoder_input_ids": _ids(2, 8)}


def pair_masked() -> dict[str, Any]:
    return {**pair(), "attention_mask": torch.ones(2, 16), "decoder_attention_mask": torch.ones(2, 8)}


def image(size: int = 32) -> Callable[[], dict[str, Any]]:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


def image_and_text() -> dict[str, Any]:
    return {**image()(), "input_ids": _ids()}


def speech() -> dict[str, Any]:
    return {"input_values": torch.randn(2, 1600)}


def spectrogram() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 16, 60), "decoder_input_ids": _ids(2, 8)}


_GPT = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_SEQ2SEQ = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
_T5 = {
    "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99,
    "decoder_start_token_id": 0,
}  # fmt: skip
_EXPERTS = {**GROUPED, "num_experts_per_tok": 2}
_SPEECH = {
    **TINY, "vocab_size": 32, "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
    "mask_time_prob": 0.0,
}  # fmt: skip
_STAGES = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": 32, "patch_size": 4}
_TOWERS = {
    "text_config": {**TEXT, "projection_dim": 32},
    "vision_config": {**IMAGE, "projection_dim": 32},
    "projection_dim": 32,
}

# name: (class of the model, class of its configuration, inputs, arguments of the configuration[, train])
TRANSFORMERS: dict[str, tuple[Any, ...]] = {
    "albert": ("AlbertForMaskedLM", "AlbertConfig", text, {**TEXT, "embedding_size": 16}),
    "bart": ("BartForConditionalGeneration", "BartConfig", pair, _SEQ2SEQ),
    "beit": ("BeitForImageClassification", "BeitConfig", image(), IMAGE),
    "bert": ("BertForMaskedLM", "BertConfig", masked, TEXT),
    "bert_train": ("BertForMaskedLM", "BertConfig", labelled, TEXT, True),
    "bigbird": ("BigBirdForMaskedLM", "BigBirdConfig", text, {**TEXT, "attention_type": "original_full"}),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", pair, _SEQ2SEQ),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        text,
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99},
    ),
    "camembert": ("CamembertForMaskedLM", "CamembertConfig", masked, TEXT),
    "clip": ("CLIPModel", "CLIPConfig", image_and_text, _TOWERS),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", text, {**_GPT, "rotary_dim": 4, "n_ctx": 64}),
    "cohere": ("CohereForCausalLM", "CohereConfig", text, GROUPED),
    "convbert": ("ConvBertForMaskedLM", "ConvBertConfig", text, {**TEXT, "embedding_size": 32}),
    "convnext": (
        "ConvNextForImageClassification",
        "ConvNextConfig",
        image(),
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    ),
    "data2vec_audio": ("Data2VecAudioForCTC", "Data2VecAudioConfig", speech, _SPEECH),
    "deberta": (
        "DebertaForMaskedLM",
        "DebertaConfig",
        masked,
        {**TEXT, "relative_attention": True, "pos_att_type": "c2p|p2c"},
    ),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        masked,
        {**TEXT, "relative_attention": True, "pos_att_type": "c2p|p2c"},
    ),
    "deit": ("DeiTForImageClassification", "DeiTConfig", image(), IMAGE),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", image(), {**IMAGE, "mlp_ratio": 2}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        masked,
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},
    ),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", masked, {**TEXT, "embedding_size": 16}),
    "ernie": ("ErnieForMaskedLM", "ErnieConfig", masked, TEXT),
    "falcon": ("FalconForCausalLM", "FalconConfig", text, {**TEXT, "new_decoder_architecture": False}),
    "falcon_alibi": ("FalconForCausalLM", "FalconConfig", text, {**TEXT, "alibi": True}),
    "flaubert": (
        "FlaubertWithLMHeadModel",
        "FlaubertConfig",
        text,
        {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 99},
    ),
    "fnet": ("FNetForMaskedLM", "FNetConfig", text, TEXT),
    "funnel": (
        "FunnelForMaskedLM",
        "FunnelConfig",
        text,
        {"vocab_size": 99, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
    ),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", text, {**GROUPED, "head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", text, {**GROUPED, "head_dim": 8}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", text, {**GROUPED, "head_dim": 8}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", masked, _GPT),
    "gpt2_train": ("GPT2LMHeadModel", "GPT2Config", labelled, _GPT, True),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", text, _GPT),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        text,
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "vocab_size": 99,
        },
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", text, TEXT),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", text, {**_GPT, "rotary_dim": 4}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", text, GROUPED),
    "hubert": ("HubertForCTC", "HubertConfig", speech, _SPEECH),
    "layoutlm": ("LayoutLMForMaskedLM", "LayoutLMConfig", text, TEXT),
    "llama": ("LlamaForCausalLM", "LlamaConfig", masked, GROUPED),
    "llama_train": ("LlamaForCausalLM", "LlamaConfig", labelled, GROUPED, True),
    "longformer": ("LongformerForMaskedLM", "LongformerConfig", text, {**TEXT, "attention_window": 4}),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        text,
        {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4},
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        text,
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 99,
            "state_size": 4,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "marian": ("MarianMTModel", "MarianConfig", pair, {**_SEQ2SEQ, "decoder_vocab_size": 99}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", pair, _SEQ2SEQ),
    "mistral": ("MistralForCausalLM", "MistralConfig", masked, GROUPED),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", text, {**_EXPERTS, "num_local_experts": 4}),
    "mobilebert": (
        "MobileBertForMaskedLM",
        "MobileBertConfig",
        text,
        {**TEXT, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    ),
    "mobilevit": (
        "MobileViTForImageClassification",
        "MobileViTConfig",
        image(64),
        {"hidden_sizes": [16, 20, 24], "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32], "image_size": 64},
    ),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", masked, {**TEXT, "cls_token_id": 1, "sep_token_id": 2}),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", masked, TEXT),
    "mpt": (
        "MptForCausalLM",
        "MptConfig",
        text,
        {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 99, "max_seq_len": 64},
    ),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", pair, _T5),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", text, GROUPED),
    "opt": ("OPTForCausalLM", "OPTConfig", masked, {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", pair, _SEQ2SEQ),
    "phi": ("PhiForCausalLM", "PhiConfig", text, TEXT),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", text, GROUPED),
    "poolformer": (
        "PoolFormerForImageClassification",
        "PoolFormerConfig",
        image(),
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", masked, GROUPED),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        text,
        {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", text, {**GROUPED, "head_dim": 8}),
    "reformer": (
        "ReformerModelWithLMHead",
        "ReformerConfig",
        text,
        {
            "hidden_size": 32,
            "attention_head_size": 8,
            "num_attention_heads": 4,
            "feed_forward_size": 64,
            "axial_pos_shape": (4, 4),
            "axial_pos_embds_dim": (16, 16),
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "attn_layers": ["local", "local"],
            "vocab_size": 99,
            "is_decoder": True,
            "max_position_embeddings": 64,
        },
    ),
    "regnet": (
        "RegNetForImageClassification",
        "RegNetConfig",
        image(),
        {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "embedding_size": 8, "groups_width": 8},
    ),
    "resnet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        image(),
        {"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8},
    ),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", masked, TEXT),
    "roformer": ("RoFormerForMaskedLM", "RoFormerConfig", masked, {**TEXT, "embedding_size": 32}),
    "segformer": (
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        image(64),
        {
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "siglip_vision": ("SiglipVisionModel", "SiglipVisionConfig", image(), IMAGE),
    "speech_to_text": (
        "Speech2TextForConditionalGeneration",
        "Speech2TextConfig",
        lambda: {"input_features": torch.randn(2, 40, 16), "decoder_input_ids": _ids(2, 8)},
        {
            **_SEQ2SEQ,
            "input_feat_per_channel": 16,
            "conv_channels": 16,
            "num_conv_layers": 2,
            "max_source_positions": 64,
            "max_target_positions": 64,
        },
    ),
    "squeezebert": ("SqueezeBertForMaskedLM", "SqueezeBertConfig", masked, {**TEXT, "embedding_size": 32}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", text, GROUPED),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", text, GROUPED),
    "swin": ("SwinForImageClassification", "SwinConfig", image(), _STAGES),
    "swinv2": ("Swinv2ForImageClassification", "Swinv2Config", image(), _STAGES),
    "t5": ("T5ForConditionalGeneration", "T5Config", pair, _T5),
    "t5_train": (
        "T5ForConditionalGeneration",
        "T5Config",
        lambda: {"input_ids": _ids(), "labels": _ids(2, 8)},
        _T5,
        True,
    ),
    "videomae": (
        "VideoMAEModel",
        "VideoMAEConfig",
        lambda: {"pixel_values": torch.randn(1, 4, 3, 32, 32)},
        {**IMAGE, "num_frames": 4},
    ),
    "vit": ("ViTForImageClassification", "ViTConfig", image(), IMAGE),
    "vit_mae": ("ViTMAEModel", "ViTMAEConfig", lambda: {**image()(), "noise": torch.rand(2, 16)}, IMAGE),
    "wav2vec2": ("Wav2Vec2ForCTC", "Wav2Vec2Config", speech, _SPEECH),
    "wavlm": ("WavLMForCTC", "WavLMConfig", speech, {**_SPEECH, "num_buckets": 16}),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        spectrogram,
        {**_SEQ2SEQ, "num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 32},
    ),
    "xglm": (
        "XGLMForCausalLM",
        "XGLMConfig",
        text,
        {
            "d_model": 32,
            "ffn_dim": 64,
            "num_layers": 2,
            "attention_heads": 4,
            "vocab_size": 99,
            "max_position_embeddings": 64,
        },
    ),
    "xlm": ("XLMWithLMHeadModel", "XLMConfig", text, {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 99}),
    "xlm_roberta": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", masked, TEXT),
    "xlnet": (
        "XLNetLMHeadModel",
        "XLNetConfig",
        text,
        {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
    ),
    "yolos": ("YolosForObjectDetection", "YolosConfig", image(), {**IMAGE, "image_size": [32, 32]}),
    "vit_train": (
        "ViTForImageClassification",
        "ViTConfig",
        lambda: {**image()(), "labels": torch.tensor([0, 1])},
        IMAGE,
        True,
    ),
    "mixtral_train": ("MixtralForCausalLM", "MixtralConfig", labelled, {**_EXPERTS, "num_local_experts": 4}, True),
    "clip_train": ("CLIPModel", "CLIPConfig", lambda: {**image_and_text(), "return_loss": True}, _TOWERS, True),
    "bart_train": (
        "BartForConditionalGeneration",
        "BartConfig",
        lambda: {"input_ids": _ids(), "labels": _ids(2, 8)},
        _SEQ2SEQ,
        True,
    ),
    "siglip": ("SiglipModel", "SiglipConfig", image_and_text, {"text_config": TEXT, "vision_config": IMAGE}),
    "blip": ("BlipForImageTextRetrieval", "BlipConfig", image_and_text, _TOWERS),
    "vilt": ("ViltModel", "ViltConfig", image_and_text, {**TEXT, **IMAGE, "max_image_length": -1}),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", text, {**_EXPERTS, "num_experts": 4}),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        text,
        {
            **TEXT,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "first_k_dense_replace": 1,
        },
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        text,
        {**_EXPERTS, "num_local_experts": 4, "head_dim": 8, "sliding_window": 8},
    ),
    "jamba": (
        "JambaForCausalLM",
        "JambaConfig",
        text,
        {
            **_EXPERTS,
            "num_experts": 2,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "falcon_mamba": (
        "FalconMambaForCausalLM",
        "FalconMambaConfig",
        text,
        {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4},
    ),
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        text,
        {**GROUPED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8},
    ),
    "rwkv": (
        "RwkvForCausalLM",
        "RwkvConfig",
        text,
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 99,
            "attention_hidden_size": 32,
            "intermediate_size": 64,
            "context_length": 64,
        },
    ),
    "audio_spectrogram": (
        "ASTForAudioClassification",
        "ASTConfig",
        lambda: {"input_values": torch.randn(2, 32, 16)},
        {**TINY, "max_length": 32, "num_mel_bins": 16, "patch_size": 8, "time_stride": 8, "frequency_stride": 8},
    ),
    "encodec": (
        "EncodecModel",
        "EncodecConfig",
        lambda: {"input_values": torch.randn(1, 1, 640)},
        {
            "num_filters": 4,
            "hidden_size": 16,
            "codebook_size": 16,
            "codebook_dim": 16,
            "num_lstm_layers": 1,
            "upsampling_ratios": [4, 2],
        },
    ),
    "sew": ("SEWForCTC", "SEWConfig", speech, {**_SPEECH, "squeeze_factor": 2}),
    "unispeech": ("UniSpeechForCTC", "UniSpeechConfig", speech, {**_SPEECH, "num_ctc_classes": 32}),
    "dpt": (
        "DPTForDepthEstimation",
        "DPTConfig",
        image(),
        {
            **IMAGE,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 8, 8],
            "fusion_hidden_size": 8,
            "is_hybrid": False,
        },
    ),
    "focalnet": (
        "FocalNetForImageClassification",
        "FocalNetConfig",
        image(),
        {
            "image_size": 32,
            "embed_dim": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "focal_levels": [1, 1],
            "focal_windows": [3, 3],
        },
    ),
    "hiera": (
        "HieraForImageClassification",
        "HieraConfig",
        image(64),
        {"image_size": [64, 64], "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 2]},
    ),
    "mobilenet_v2": (
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        image(64),
        {"image_size": 64, "depth_multiplier": 0.35},
    ),
    "perceiver": (
        "PerceiverForMaskedLM",
        "PerceiverConfig",
        lambda: {"inputs": _ids()},
        {
            "vocab_size": 99,
            "d_model": 32,
            "d_latents": 32,
            "num_latents": 8,
            "num_self_attends_per_block": 1,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
            "max_position_embeddings": 16,
        },
    ),
    "esm": ("EsmForMaskedLM", "EsmConfig", masked, {**TEXT, "mask_token_id": 4, "position_embedding_type": "rotary"}),
    "led": (
        "LEDForConditionalGeneration",
        "LEDConfig",
        pair,
        {
            **{k: v for k, v in _SEQ2SEQ.items() if k != "max_position_embeddings"},
            "attention_window": 4,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
        },
    ),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", pair, _SEQ2SEQ),
    "longt5": ("LongT5ForConditionalGeneration", "LongT5Config", pair_masked, {**_T5, "local_radius": 4}),
    "glm": ("GlmForCausalLM", "GlmConfig", text, {**GROUPED, "head_dim": 8}),
    "biogpt": ("BioGptForCausalLM", "BioGptConfig", text, TEXT),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        text,
        {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 16, "head_dim": 8},
    ),
    "patchtst": (
        "PatchTSTForPrediction",
        "PatchTSTConfig",
        lambda: {"past_values": torch.randn(2, 32, 2)},
        {
            "num_input_channels": 2,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 16,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "ffn_dim": 32,
            "prediction_length": 4,
        },
    ),
    "decision_transformer": (
        "DecisionTransformerModel",
        "DecisionTransformerConfig",
        lambda: {
            "states": torch.randn(2, 5, 17),
            "actions": torch.randn(2, 5, 4),
            "rewards": torch.randn(2, 5, 1),
            "returns_to_go": torch.randn(2, 5, 1),
            "timesteps": torch.arange(5).repeat(2, 1),
            "attention_mask": torch.ones(2, 5),
        },
        {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    ),
    "switch_transformers": (
        "SwitchTransformersForConditionalGeneration",
        "SwitchTransformersConfig",
        pair_masked,
        {**_T5, "num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    ),
}
