"""Where the loop already lives: transformers.Trainer, Lightning, Accelerate."""

import gc
import json

import pytest
import torch
from torch import nn

from privet.dpsgd import Charging, Schedule, private
from privet.guarantee import Guarantee
from privet.noise import seeded
from tests.methods.dpsgd.helpers import grouped

PUBLIC = Charging(evaluation="public")
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

    from privet.methods.dpsgd.transformers_trainer import PrivateTrainer

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


class Judged:
    """A Lightning module with a validation and a scheduler, made where lightning is there."""

    def __new__(cls, **more):
        lightning = pytest.importorskip("lightning", reason="needs the extra `lightning`")
        import logging

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

        class Net(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net, self.judged, self.rates = nn.Linear(4, 2), 0, []

            def training_step(self, batch, index):
                self.rates.append(self.optimizer.param_groups[0]["lr"])
                return nn.functional.cross_entropy(self.net(batch.x), batch.y, reduction="none")

            def validation_step(self, batch, index):
                self.judged += 1
                self.log("val_loss", torch.tensor(1.0 + self.judged))  # worse every time

            def configure_optimizers(self):
                self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
                halved = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
                return {"optimizer": self.optimizer, "lr_scheduler": {"scheduler": halved}}

        return Net()


def fit(net, callbacks=(), trainer=None, **settings):
    import warnings

    import lightning

    from privet.methods.dpsgd.lightning import PrivateModule

    torch.manual_seed(0)
    data = torch.randn(30, 4), torch.arange(30) % 2
    held_out = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = PrivateModule(
            net, data, Schedule(steps=8, sample_rate=0.5, noise_multiplier=1.0),
            rng=seeded(0), delta=1e-5, **settings,
        )  # fmt: skip
        lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[*callbacks],
            num_sanity_val_steps=0, val_check_interval=2, **(trainer or {}),
        ).fit(module, val_dataloaders=held_out)  # fmt: skip
    return module


def test_lightning_validates_and_schedules():
    net = Judged()
    module = fit(net, charging=PUBLIC)
    run = module.training_run
    assert run.steps_done == 8 and net.judged >= 2
    assert net.rates[0] == 0.1 and net.rates[-1] == pytest.approx(0.1 * 0.5**7)
    assert "public" in str(run.guarantee.premises)


def test_lightning_may_stop_early_and_pays_for_all():
    Judged()
    from lightning.pytorch.callbacks import EarlyStopping

    module = fit(Judged(), [EarlyStopping("val_loss", patience=1)], charging=PUBLIC)
    run = module.training_run
    assert 0 < run.steps_done < 8
    assert run.epsilon_spent == fit(Judged(), charging=PUBLIC).training_run.epsilon_spent


def test_lightning_must_be_told_what_it_validates_on():
    Judged()
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    from privet.errors import InvalidArgument

    with pytest.raises(InvalidArgument, match="evaluation"):
        fit(Judged())
    with pytest.raises(MisconfigurationException, match="accumulation"):
        fit(Judged(), charging=PUBLIC, trainer={"accumulate_grad_batches": 2})


def trained(folder, callbacks=(), stop=False, **given):
    gc.collect()  # what earlier tests left must not touch torch's generator in the middle of a run
    model = bert()
    from transformers import EarlyStoppingCallback, TrainingArguments

    from privet.methods.dpsgd.transformers_trainer import PrivateTrainer

    settings = {k: given.pop(k) for k in ("evaluation",) if k in given}
    trainer = PrivateTrainer(
        model,
        TrainingArguments(str(folder), report_to=[], use_cpu=True, disable_tqdm=True, **given),
        train_dataset=rows(),
        eval_dataset=rows(8),
        callbacks=[*callbacks, *([EarlyStoppingCallback(early_stopping_patience=1)] * stop)],
        schedule=Schedule(steps=6, sample_rate=0.5, noise_multiplier=1.0),
        private_settings={"rng": seeded(0), "delta": 1e-5},
        **settings,
    )
    trainer.train()
    return trainer


quietly = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


@quietly
def test_a_trainer_evaluates_logs_and_saves_in_its_loop(tmp_path, one_thread):
    trainer = trained(
        tmp_path, eval_strategy="steps", eval_steps=2, logging_steps=3, save_steps=4,
        evaluation="public",
    )  # fmt: skip
    told = [(line["step"], "eval_loss" in line) for line in trainer.state.log_history]
    assert [step for step, judged in told if judged] == [2, 4, 6]
    assert [step for step, judged in told if not judged] == [3, 6]
    assert all("loss" not in line for line in trainer.state.log_history)  # exact, so not told
    saved = json.loads((tmp_path / "checkpoint-4" / "guarantee.json").read_text())
    assert saved == trainer.training.guarantee.to_dict()  # all was charged at the start
    without = trained(tmp_path, save_strategy="no")
    for p, q in zip(trainer.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(p, q)  # evaluation changes nothing


@quietly
def test_a_trainer_may_stop_early_and_pays_for_all(tmp_path):
    how = {
        "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "no", "learning_rate": 0.0,
        "metric_for_best_model": "eval_loss", "greater_is_better": False,
    }  # fmt: skip
    trainer = trained(tmp_path, stop=True, evaluation="public", **how)
    assert 0 < trainer.training.steps_done < 6
    whole = trained(tmp_path, save_strategy="no").training
    assert trainer.training.epsilon_spent == pytest.approx(whole.epsilon_spent, rel=1e-9)
    backing = {p.about: p.backing.value for p in trainer.training.guarantee.premises}
    assert backing["evaluation"] == "assumed" and "end" not in backing
    declared = trained(tmp_path, stop=True, evaluation="unprotected", **how).training
    backing = {p.about: p.backing.value for p in declared.guarantee.premises}
    assert backing["evaluation"] == "not met"


@quietly
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"eval_strategy": "steps", "eval_steps": 1}, "evaluation"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch", "evaluation": "public"}, "scheduler"),
    ],
)  # fmt: skip
def test_a_trainer_refuses_in_one_line(tmp_path, given, said):
    from privet.errors import InvalidArgument

    with pytest.raises(InvalidArgument, match=said) as error:
        trained(tmp_path, **given)
    assert "\n" not in str(error.value)


@quietly
def test_a_callback_cannot_evaluate_on_records_that_nobody_spoke_of(tmp_path):
    from transformers import TrainerCallback

    from privet.errors import InvalidArgument

    class Asks(TrainerCallback):
        def on_step_end(self, args, state, control, **kw):
            control.should_evaluate = True

    with pytest.raises(InvalidArgument, match="evaluation"):
        trained(tmp_path, callbacks=[Asks()], eval_strategy="no", save_strategy="no")


@quietly
def test_a_trainer_in_bfloat16_autocast(tmp_path):
    trainer = trained(tmp_path, bf16=True, save_strategy="no")
    assert trainer.training.steps_done == 6
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)  # it remembers bfloat16 for the whole process


def test_accelerate(tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="needs the extra `transformers`")
    accelerator = accelerate.Accelerator(cpu=True)
    model = accelerator.prepare(bert().eval())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=3)
    settings = grouped({"scheduler": falling, "evaluation": "public"})
    with private(
        model, optimizer, rows(), SCHEDULE, rng=seeded(0), delta=1e-5, **settings
    ) as training:
        for batch in training:
            logits = model(input_ids=batch["input_ids"]).logits
            training.step(nn.functional.cross_entropy(logits, batch["labels"], reduction="none"))
    assert training.steps_done == 3 and optimizer.param_groups[0]["lr"] == 0.0
    accelerator.unwrap_model(model).save_pretrained(tmp_path)
    training.save_guarantee(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    told = json.loads((tmp_path / "guarantee.json").read_text())
    assert told == training.guarantee.to_dict()
