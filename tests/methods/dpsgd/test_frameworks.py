"""Where the loop already lives: transformers.Trainer, Lightning, Accelerate."""

import json

import pytest
import torch
from torch import nn

from privet.dpsgd import Schedule, private
from privet.guarantee import Guarantee
from privet.noise import seeded

pytestmark = pytest.mark.slow  # importing the frameworks takes seconds

WORDS, LENGTH = 20, 5
SCHEDULE = Schedule(steps=3, sample_rate=0.5, noise_multiplier=1.0)


def rows(n=16):
    torch.manual_seed(0)
    ids = torch.randint(1, WORDS, (n, LENGTH))
    return [{"input_ids": row.tolist(), "labels": int(row[0] > 9)} for row in ids]


def bert():
    transformers = pytest.importorskip("transformers", reason="needs the extra `transformers`")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=8,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
def test_a_trainer(tmp_path):
    model = bert()
    from transformers import TrainerCallback, TrainingArguments

    from privet.methods.dpsgd.trainer import PrivateTrainer

    seen = []

    class Count(TrainerCallback):
        def on_step_end(self, args, state, control, **kw):
            seen.append((state.global_step, kw["optimizer"].param_groups[0]["lr"]))

    trainer = PrivateTrainer(
        model,
        TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, learning_rate=1e-2),
        train_dataset=rows(),
        callbacks=[Count()],
        schedule=SCHEDULE,
        private_settings={"rng": seeded(0), "delta": 1e-5},
    )
    before = model.classifier.weight.detach().clone()
    out = trainer.train()
    assert out.global_step == 3 and [step for step, _ in seen] == [1, 2, 3]
    assert seen[0][1] > seen[-1][1] == 0.0  # its own schedule, down to nothing
    assert not torch.equal(before, model.classifier.weight)
    trainer.save_model()
    told = json.loads((tmp_path / "guarantee.json").read_text())
    assert told == trainer.training.guarantee.to_dict() and isinstance(
        trainer.training.guarantee, Guarantee
    )
    assert (tmp_path / "model.safetensors").exists()


def test_lightning():
    lightning = pytest.importorskip("lightning", reason="needs the extra `lightning`")
    import logging
    import warnings

    from privet.methods.dpsgd.lightning import PrivateModule

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch.x), batch.y, reduction="none")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    net, data = Net(), (torch.randn(30, 4), torch.arange(30) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        module = PrivateModule(net, data, SCHEDULE, rng=seeded(0), delta=1e-5)
        trainer.fit(module)
    assert module.training_run.steps_done == 3
    torch.manual_seed(0)
    again = Net()
    with private(
        again, again.configure_optimizers(), data, SCHEDULE, rng=seeded(0), delta=1e-5
    ) as t:
        for batch in t:
            t.step(again.training_step(batch, 0))
    for p, q in zip(net.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)


def test_accelerate():
    accelerate = pytest.importorskip("accelerate", reason="needs the extra `transformers`")
    accelerator = accelerate.Accelerator(cpu=True)
    model = accelerator.prepare(bert().eval())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with private(model, optimizer, rows(), SCHEDULE, rng=seeded(0), delta=1e-5) as training:
        for batch in training:
            logits = model(input_ids=batch["input_ids"]).logits
            training.step(nn.functional.cross_entropy(logits, batch["labels"], reduction="none"))
    assert training.steps_done == 3
