"""Tiny random models of many families of transformers, with data and one loss a row for each.

A family's own default configuration is made small by the sizes in `_SMALL`, as far as it has such
fields; the rest (attention, positions, norms, experts, caches) stays as its authors have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_cases import Case, Problem

ROWS, WORDS, LENGTH, PIXELS = 12, 33, 7, 32
_SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size"), 16),
    **dict.fromkeys(("word_embed_proj_dim", "projection_dim", "hidden_dim_text"), 16),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "n_inner"), 24),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_inner", "ffn_hidden_size"), 24),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts"), 3),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 12),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "head_dim", "d_kv", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim"), 4),
    "attention_head_size": 8, "num_key_value_heads": 2, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "sliding_window": 8, "type_vocab_size": 2,
    "vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "image_size": PIXELS, "patch_size": 4,
}  # fmt: skip

_CAUSAL = [
    "afmoe",
    "apertus",
    "arcee",
    "bart",
    "bert",
    "big_bird",
    "biogpt",
    "bitnet",
    "blenderbot",
    "bloom",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "cwm",
    "diffllama",
    "doge",
    "ernie4_5",
    "exaone4",
    "falcon",
    "falcon_mamba",
    "flex_olmo",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gpt_neox_japanese",
    "gpt_oss",
    "gptj",
    "granite",
    "granitemoe",
    "helium",
    "jetmoe",
    "lfm2",
    "llama",
    "llama4_text",
    "mamba",
    "marian",
    "mbart",
    "minimax",
    "ministral3",
    "mistral",
    "mixtral",
    "modernbert-decoder",
    "mpt",
    "nanochat",
    "nemotron",
    "olmo",
    "olmo2",
    "olmoe",
    "openai-gpt",
    "opt",
    "pegasus",
    "persimmon",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "recurrent_gemma",
    "roformer",
    "rwkv",
    "smollm3",
    "stablelm",
    "starcoder2",
    "trocr",
    "vaultgemma",
    "xglm",
    "xlm",
    "xlnet",
]
_CLASSIFIERS = [
    "albert",
    "bert",
    "big_bird",
    "biogpt",
    "camembert",
    "convbert",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "eurobert",
    "flaubert",
    "fnet",
    "funnel",
    "gte",
    "ibert",
    "layoutlm",
    "longformer",
    "megatron-bert",
    "mobilebert",
    "modernbert",
    "mpnet",
    "mra",
    "nomic_bert",
    "nystromformer",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roformer",
    "squeezebert",
    "tapas",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xlnet",
    "yoso",
]
_SEQUENCE_TO_SEQUENCE = [
    "bart",
    "bigbird_pegasus",
    "blenderbot",
    "blenderbot-small",
    "led",
    "longt5",
    "m2m_100",
    "marian",
    "mbart",
    "mt5",
    "mvp",
    "nllb-moe",
    "pegasus",
    "pegasus_x",
    "plbart",
    "prophetnet",
    "switch_transformers",
    "t5",
    "umt5",
]
_IMAGES = [
    "beit",
    "bit",
    "convnext",
    "convnextv2",
    "cvt",
    "data2vec-vision",
    "deit",
    "dinov2",
    "dinov2_with_registers",
    "efficientnet",
    "focalnet",
    "hiera",
    "ijepa",
    "mobilenet_v2",
    "mobilevit",
    "poolformer",
    "pvt",
    "regnet",
    "resnet",
    "segformer",
    "swin",
    "swinv2",
    "vit",
    "vit_msn",
]

_HIERARCHY = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
_OVERRIDES: dict[str, dict[str, Any]] = {
    "bit": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_groups": 4},
    "convnext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "convnextv2": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "cvt": {
        "embed_dim": [8, 16, 16], "depth": [1, 2, 3], "num_heads": [1, 2, 2],
            "drop_path_rate": [0.0, 0.0, 0.1]},
    "efficientnet": {"width_coefficient": 0.2, "depth_coefficient": 0.2, "hidden_dim": 256},
    "esm": {"vocab_size": WORDS, "pad_token_id": 0, "mask_token_id": 3, "token_dropout": False,
            "position_embedding_type": "rotary"},
    "focalnet": {"embed_dim": 8, "depths": [1, 1], "hidden_sizes": [8, 16],
                 "focal_levels": [1, 1], "focal_windows": [3, 3]},
    "hiera": {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "image_size": [32, 32],
              "patch_stride": [4, 4], "patch_size": [7, 7], "patch_padding": [3, 3],
              "masked_unit_size": [4, 4], "num_query_pool": 1, "query_stride": [2, 2]},
    "led": {"attention_window": 4, "max_encoder_position_embeddings": 32,
            "max_decoder_position_embeddings": 32},
    "longformer": {"attention_window": 4},
    "mobilenet_v2": {"depth_multiplier": 0.25},
    "mobilevit": {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [4, 4, 8, 8, 8, 8, 16],
                  "num_attention_heads": 2},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "poolformer": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    "pvt": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2]},
    "regnet": {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
               "groups_width": 4},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "rwkv": {"use_cache": False},  # else it cannot be differentiated in evaluation mode
    "segformer": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
                  "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16},
    "swin": _HIERARCHY, "swinv2": _HIERARCHY,
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them; a name says what is asked of the family."""
    for family in _CAUSAL:
        yield Case(f"transformers/{family}/language", _causal(family))
    for family in _CLASSIFIERS:
        yield Case(f"transformers/{family}/classify", _classify(family))
    for family in _SEQUENCE_TO_SEQUENCE:
        yield Case(f"transformers/{family}/translate", _translate(family))
    for family in _IMAGES:
        yield Case(f"transformers/{family}/pictures", _pictures(family))
    yield Case("transformers/clip/pairs", _pairs("CLIPModel", "CLIPConfig"))
    yield Case("transformers/siglip/pairs", _pairs("SiglipModel", "SiglipConfig"))
    yield Case("transformers/blip/pairs", _pairs("BlipModel", "BlipConfig"))
    yield Case("transformers/yolos/boxes", _boxes)
    yield Case("transformers/wav2vec2/sound", _sound("wav2vec2"))
    yield Case("transformers/hubert/sound", _sound("hubert"))
    yield Case("transformers/whisper/sound", _whisper)
    yield Case("transformers/gpt2/lora", _lora("gpt2", "c_attn"))
    yield Case("transformers/llama/lora", _lora("llama", "q_proj"))
    yield Case("transformers/vit/head", _head_only)


def tiny_config(kind: type[Any], **overrides: Any) -> Any:
    """A family's configuration with small sizes."""
    default = kind().to_dict()
    plain = (int, float, str)
    fields = {k: v for k, v in _SMALL.items() if isinstance(default.get(k), plain)}
    return kind(**{**fields, **overrides})


def _family(mapping: str, family: str, **more: Any) -> nn.Module:
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = tiny_config(CONFIG_MAPPING[family], **{**_OVERRIDES.get(family, {}), **more})
    kind = getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES")[family]
    model: nn.Module = getattr(transformers, kind if isinstance(kind, str) else kind[0])(config)
    return model


def _words() -> Tensor:
    words = torch.randint(3, WORDS, (ROWS, LENGTH))
    words[:, -1] = 2  # the end of a sentence, which some classifiers look for
    return words


def _labels() -> Tensor:
    return torch.arange(ROWS) % 2


def _word_losses(model: nn.Module, batch: Any) -> Tensor:
    logits = model(batch.x).logits
    losses: Tensor = F.cross_entropy(logits.transpose(1, 2), batch.x, reduction="none").mean(1)
    return losses


def _class_losses(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch.x).logits, batch.y, reduction="none")


def _translation_losses(model: nn.Module, batch: Any) -> Tensor:
    logits = model(input_ids=batch.x, decoder_input_ids=batch.y).logits
    losses: Tensor = F.cross_entropy(logits.transpose(1, 2), batch.y, reduction="none").mean(1)
    return losses


def _causal(family: str) -> Callable[[], Problem]:
    return lambda: Problem(_family("CAUSAL_LM", family), (_words(), _labels()), _word_losses)


def _classify(family: str) -> Callable[[], Problem]:
    def build() -> Problem:
        return Problem(
            _family("SEQUENCE_CLASSIFICATION", family), (_words(), _labels()), _class_losses
        )

    return build


def _translate(family: str) -> Callable[[], Problem]:
    def build() -> Problem:
        return Problem(
            _family("SEQ_TO_SEQ_CAUSAL_LM", family), (_words(), _words()), _translation_losses
        )

    return build


def _pictures(family: str) -> Callable[[], Problem]:
    def build() -> Problem:
        x = torch.rand(ROWS, 3, PIXELS, PIXELS)
        return Problem(_family("IMAGE_CLASSIFICATION", family), (x, _labels()), _class_losses)

    return build


def _pairs(model: str, config: str) -> Callable[[], Problem]:
    def build() -> Problem:
        import transformers

        whole = getattr(transformers, config)
        parts = {
            part: tiny_config(type(getattr(whole(), part))).to_dict()
            for part in ("text_config", "vision_config")
        }
        net = getattr(transformers, model)(whole(**parts, projection_dim=16))
        return Problem(net, (_words(), torch.rand(ROWS, 3, PIXELS, PIXELS)), _pair_losses)

    return build


def _pair_losses(model: Any, batch: Any) -> Tensor:
    out = model(input_ids=batch.x, pixel_values=batch.y)
    return -(out.text_embeds * out.image_embeds).sum(1)


def _boxes() -> Problem:
    import transformers

    config = tiny_config(
        transformers.YolosConfig, image_size=[PIXELS, PIXELS], num_detection_tokens=3
    )
    x = torch.rand(ROWS, 3, PIXELS, PIXELS)

    def losses(model: nn.Module, batch: Any) -> Tensor:
        return model(batch.x).pred_boxes.square().sum((1, 2))  # type: ignore[no-any-return]

    return Problem(transformers.YolosForObjectDetection(config), (x, _labels()), losses)


def _sound(family: str) -> Callable[[], Problem]:
    def build() -> Problem:
        import transformers

        kinds = {
            "wav2vec2": (
                transformers.Wav2Vec2Config,
                transformers.Wav2Vec2ForSequenceClassification,
            ),
            "hubert": (transformers.HubertConfig, transformers.HubertForSequenceClassification),
        }
        config, model = kinds[family]
        sizes = {"conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [5, 2],
                 "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
                 "mask_time_prob": 0.0, "classifier_proj_size": 8}  # fmt: skip
        net = model(tiny_config(config, **sizes))
        return Problem(net, (torch.randn(ROWS, 200), _labels()), _class_losses)

    return build


def _whisper() -> Problem:
    import transformers

    config = tiny_config(
        transformers.WhisperConfig, num_mel_bins=8, max_source_positions=20,
        max_target_positions=32,
    )  # fmt: skip

    def losses(model: nn.Module, batch: Any) -> Tensor:
        logits = model(input_features=batch.x, decoder_input_ids=batch.y).logits
        return F.cross_entropy(logits.transpose(1, 2), batch.y, reduction="none").mean(1)

    net = transformers.WhisperForConditionalGeneration(config)
    return Problem(net, (torch.randn(ROWS, 8, 40), _words()), losses)


def _lora(family: str, target: str) -> Callable[[], Problem]:
    def build() -> Problem:
        import peft

        base: Any = _family("CAUSAL_LM", family)
        config = peft.LoraConfig(r=2, target_modules=[target], lora_dropout=0.1)
        return Problem(peft.get_peft_model(base, config), (_words(), _labels()), _word_losses)

    return build


def _head_only() -> Problem:
    model: Any = _family("IMAGE_CLASSIFICATION", "vit")
    model.requires_grad_(False)
    model.classifier.requires_grad_(True)
    x = torch.rand(ROWS, 3, PIXELS, PIXELS)
    return Problem(model, (x, _labels()), _class_losses)
