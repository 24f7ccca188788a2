"""Transformers of the step benchmark, tiny ones of `transformers` with random weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

WORDS, LENGTH = 5000, 128
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
"""Its draws would be most of the difference."""


class Logits(nn.Module):
    """Logits alone, classes in the second dimension."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.train()  # Opacus sees nothing in evaluation mode

    def forward(self, x: Tensor) -> Tensor:
        """Of classes, or of words."""
        logits: Tensor = self.model(x).logits
        return logits if logits.dim() == 2 else logits.transpose(1, 2)


def bert_mini() -> nn.Module:
    """4 layers of 256, length 128, two classes."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=WORDS, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, max_position_embeddings=LENGTH, **_NO_DROPOUT,
    )  # fmt: skip
    return Logits(BertForSequenceClassification(config))


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=WORDS,
            n_positions=LENGTH,
            n_embd=256,
            n_layer=4,
            n_head=4,
            bos_token_id=1,
            eos_token_id=1,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def gpt2_mini() -> nn.Module:
    """4 layers of 256, every next word of 128, tied head."""
    return Logits(_gpt2())


def gpt2_lora() -> nn.Module:
    """The same with adapters of rank 8 alone."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True)
    return Logits(get_peft_model(_gpt2(), config))


def vit_tiny() -> nn.Module:
    """12 layers of 192 on pictures of 32 x 32 in patches of 4."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768,
        image_size=32, patch_size=4, num_labels=10, **_NO_DROPOUT,
    )  # fmt: skip
    return Logits(ViTForImageClassification(config))
