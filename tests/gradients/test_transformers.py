"""Models as people have them: tiny random ones of `transformers` and `peft`, nothing downloaded."""

import pytest
import torch
from oracle import example_gradients, oracle, worst_relative_error
from torch import nn

from privet.dpsgd import Schedule, StepOptions, private
from privet.gradients import FlatClipping, PerExampleGradients
from privet.gradients.find_layers import find_layers
from privet.gradients.linear import LinearHandler
from privet.noise import seeded

pytestmark = pytest.mark.slow  # importing transformers takes seconds


@pytest.fixture(autouse=True, scope="module")
def _imported():
    """When the first of these runs: it takes seconds, and most workers run none."""
    global transformers
    transformers = pytest.importorskip("transformers", reason="needs the extra `transformers`")
    transformers.logging.set_verbosity_error()


WORDS, LENGTH = 30, 6
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
}  # fmt: skip
TEXT = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 12}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def bert():
    return transformers.BertForSequenceClassification(transformers.BertConfig(**TEXT))


def bert_words():
    return transformers.BertForMaskedLM(transformers.BertConfig(**TEXT))


def distilbert():
    config = transformers.DistilBertConfig(
        vocab_size=WORDS, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=12
    )
    return transformers.DistilBertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=12, n_embd=16, n_layer=2, n_head=2, **ENDS
    )
    return transformers.GPT2LMHeadModel(config)


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**TEXT, num_key_value_heads=1, **ENDS)
    )


def t5():
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def vit():
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**SMALL, image_size=8, patch_size=4)
    )


class GRUText(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.gru = nn.Embedding(WORDS, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, input_ids):
        return self.head(self.gru(self.words(input_ids))[0][:, -1])


def with_lora(make, targets, transposed):
    peft = pytest.importorskip("peft", reason="needs the extra `transformers`")

    def made():
        config = peft.LoraConfig(
            r=2, target_modules=targets, init_lora_weights=False, fan_in_fan_out=transposed
        )
        return peft.get_peft_model(make(), config)

    return made


MODELS = {"bert": bert, "bert, words": bert_words, "distilbert": distilbert, "gpt2": gpt2,
          "llama": llama, "t5": t5, "vit": vit, "gru": GRUText}  # fmt: skip
LORA = {"gpt2": ["c_attn", "c_proj"], "llama": ["q_proj", "v_proj"], "bert": ["query", "value"]}


def made(name):
    torch.manual_seed(0)
    if name.startswith("lora "):
        name = name.removeprefix("lora ")
        return with_lora(MODELS[name], LORA[name], name == "gpt2")().eval()
    return MODELS[name]().eval()


def losses(model, x):
    """Of classes, or of the words themselves; one a row."""
    if x.is_floating_point():
        return model(pixel_values=x).logits.square().sum(1)
    if isinstance(model, GRUText):
        return model(x).square().sum(1)
    more = {"decoder_input_ids": x} if model.config.is_encoder_decoder else {}
    if "attention_mask" in model.forward.__code__.co_varnames:
        more["attention_mask"] = (x > 0).long()
    logits = model(input_ids=x, **more).logits
    if logits.dim() == 2:
        return logits.square().sum(1)
    return nn.functional.cross_entropy(logits.transpose(1, 2), x, reduction="none").mean(1)


def inputs(name, rows):
    if name == "vit":
        return torch.rand(rows, 3, 8, 8)
    return torch.randint(1, WORDS, (rows, LENGTH))


@pytest.mark.parametrize("name", [*MODELS, *(f"lora {name}" for name in LORA)])
def test_gradients_are_those_of_the_loop_over_examples(name):
    model = made(name).double()
    engine, clipping = PerExampleGradients(model), FlatClipping(bound=1.0)
    for rows in (4, LENGTH, 1):  # as many rows as words, too
        x = inputs(name, rows)
        x = x.double() if x.is_floating_point() else x
        with engine.recording():
            found = losses(model, x)
        total = engine.clipped_sum(found, clipping=clipping)
        expected = oracle(engine, clipping, example_gradients(model, losses, x))
        assert worst_relative_error(total.gradients, expected) < 1e-5


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "vit", "lora gpt2", "lora llama"])
def test_every_parameter_moves_under_a_guarantee(name):
    model = made(name).train()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    trained = [p for p in model.parameters() if p.requires_grad]
    schedule = Schedule(steps=2, sample_rate=0.5, noise_multiplier=2.0)
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    data = {"rows": inputs(name, 20)}
    with private(
        model, optimizer, data, schedule, delta=1e-5, rng=seeded(0),
        losses=lambda model, batch: losses(model, batch["rows"]),
        # GPT-2 looks for the last word of a row by its value, which no trace shows
        step=StepOptions(independence="tested" if "gpt2" in name else "enforced"),
    ) as training:  # fmt: skip
        for _ in training:
            pass
    assert training.guarantee.epsilon < 10.0
    for n, p in model.named_parameters():
        assert bool((p != before[n]).any()) is p.requires_grad, n


def test_gradient_checkpointing_changes_nothing():
    x = inputs("bert", 4)
    sums = []
    for often in (False, True):
        model = made("bert").train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        model.config._attn_implementation = "eager"
        if often:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.bert.encoder.layer[0].attention.self.dropout.p = 0.0
        engine = PerExampleGradients(model, kernel_choice="cost-model")
        with engine.recording():
            found = losses(model, x)
        sums.append(engine.clipped_sum(found).flat.clone())
    assert torch.allclose(*sums, rtol=0, atol=1e-7)
    assert float(sums[0].norm()) > 0.0


def test_conv1d_of_gpt2_has_a_rule_of_its_own() -> None:
    from transformers.pytorch_utils import Conv1D

    (handler,) = find_layers(nn.Sequential(Conv1D(6, 4))).modules[0][1].handlers
    assert isinstance(handler, LinearHandler)
    assert handler.transposed
