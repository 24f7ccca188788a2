"""Where the loop already lives: transformers.Trainer, Lightning, Accelerate."""

import gc
import json

import numpy as np
import pytest
import torch
from torch import nn

from privet.dpsgd import Charging, Schedule, StepOptions, private
from privet.guarantee import Guarantee
from privet.methods.dpsgd.dataset_rows import as_rows
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
    assert out.training_loss is None and out.metrics["epsilon"] > 0.0  # exact, so not told
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


def test_lightning_as_people_write_it():
    """`x, y = batch`, a dict with the loss, `self.log` of it, and a `DataLoader`."""
    Judged()  # which skips where there is no Lightning
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, batch, index):
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y, reduction="none")
            self.log("train_loss", loss.mean())
            self.log_dict({"again": loss.mean()}, prog_bar=True)
            return {"loss": loss}

        def on_train_start(self):
            self.hooks = ["start"]

        def on_train_epoch_end(self):
            self.log("of all", 1.0)
            self.hooks.append("end")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    from privet.errors import InvalidArgument
    from privet.methods.dpsgd.lightning import PrivateModule

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(30, 4), torch.arange(30) % 2)
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    how = {
        "max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    with pytest.warns(UserWarning, match="of the DataLoader only the data set"):
        module = PrivateModule(Net(), loader, SCHEDULE, rng=seeded(0), delta=1e-5)
    trainer = lightning.Trainer(**how)
    with pytest.warns(UserWarning, match="self.log in training_step is dropped") as seen:
        trainer.fit(module)
    assert sum("self.log in training_step" in str(w.message) for w in seen) == 1
    assert module.training_run.steps_done == 3 and not trainer.logged_metrics
    assert module.module.hooks == ["start", "end"]  # its own hooks are called
    module = PrivateModule(
        Net(), data, SCHEDULE, rng=seeded(0), delta=1e-5, step=StepOptions(independence="assumed")
    )
    with pytest.raises(InvalidArgument, match="train_dataloaders"):
        lightning.Trainer(**how).fit(module, train_dataloaders=loader)
    assert module.training_run.epsilon_spent == 0.0
    with pytest.raises(InvalidArgument, match="max_steps"):
        lightning.Trainer(**how | {"max_steps": 2}).fit(module)


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
        how = {
            "max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
            "enable_progress_bar": False, "enable_model_summary": False,
            "num_sanity_val_steps": 0, "val_check_interval": 2,
        }  # fmt: skip
        lightning.Trainer(callbacks=[*callbacks], **how | (trainer or {})).fit(
            module, val_dataloaders=held_out
        )
    return module


def test_lightning_validates_and_schedules():
    net = Judged()
    module = fit(net, charging=PUBLIC)
    run = module.training_run
    assert run.steps_done == 8 and net.judged >= 2
    assert net.rates[0] == 0.1 and net.rates[-1] == pytest.approx(0.1 * 0.5**7)
    assert "public" in str(run.guarantee.premises)


def test_lightning_saves_checkpoints_with_the_promise_in_them(tmp_path):
    Judged()
    from lightning.pytorch.callbacks import ModelCheckpoint

    keep = ModelCheckpoint(tmp_path, monitor="val_loss", mode="max", filename="{step}")
    module = fit(Judged(), [keep], charging=PUBLIC, trainer={"enable_checkpointing": True})
    (path,) = tmp_path.glob("*.ckpt")
    kept = torch.load(path, weights_only=True)
    assert (
        path.stem == "step=8" and kept["global_step"] == 8
    )  # steps are counted, else none is saved
    assert kept["guarantee"] == module.training_run.guarantee.to_dict()
    assert torch.equal(kept["state_dict"]["module.net.weight"], module.module.net.weight)


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
    model = given.pop("model", None) or bert()
    from transformers import EarlyStoppingCallback, TrainingArguments

    from privet.methods.dpsgd.transformers_trainer import PrivateTrainer

    own = ("evaluation", "max_length", "data_collator", "compute_loss_func")
    settings = {k: given.pop(k) for k in own if k in given}
    data, more, resume = (
        given.pop("data", rows()),
        given.pop("settings", {}),
        given.pop("resume", None),
    )
    trainer = PrivateTrainer(
        model,
        TrainingArguments(str(folder), report_to=[], use_cpu=True, disable_tqdm=True, **given),
        train_dataset=data,
        eval_dataset=rows(8),
        callbacks=[*callbacks, *([EarlyStoppingCallback(early_stopping_patience=1)] * stop)],
        schedule=Schedule(steps=6, sample_rate=0.5, noise_multiplier=1.0),
        private_settings={"rng": seeded(0), "delta": 1e-5, **more},
        **settings,
    )
    trainer.train(resume_from_checkpoint=resume)
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
def test_a_trainer_loads_the_best_model(tmp_path):
    from safetensors.torch import load_file
    from transformers import TrainerCallback

    class Judge(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **kw):
            metrics["eval_score"] = {2: 0.1, 4: 0.9, 6: 0.5}[state.global_step]

    trainer = trained(
        tmp_path, [Judge()], evaluation="public", load_best_model_at_end=True, learning_rate=0.1,
        eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2,
        metric_for_best_model="score", greater_is_better=True,
    )  # fmt: skip
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-4")
    name = "classifier.weight"
    best, last = (load_file(tmp_path / f"checkpoint-{k}" / "model.safetensors") for k in (4, 6))
    assert torch.equal(trainer.model.state_dict()[name], best[name])
    assert not torch.equal(best[name], last[name])
    told = {p.about: p.backing.value for p in trainer.training.guarantee.premises}
    assert "end" not in told and told["evaluation"] == "assumed"  # the choice was paid for


@quietly
def test_a_trainer_goes_on_from_a_private_checkpoint(tmp_path):
    from privet.dpsgd import Checkpoints
    from privet.errors import InvalidArgument

    with pytest.raises(InvalidArgument, match=r"private_settings=\{'checkpoints'"):
        trained(tmp_path, save_strategy="no", resume=True)
    kept = {"checkpoints": Checkpoints(folder=tmp_path / "private", every=2)}
    whole = trained(tmp_path, save_strategy="no", settings=kept)
    again = trained(tmp_path, save_strategy="no", settings=kept, resume=True)
    assert again.state.global_step == 0 and again.training.steps_done == 6  # nothing was left to do
    for p, q in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(p, q)


@quietly
def test_a_trainer_collates_and_pads_each_record_by_itself(tmp_path):
    """Ragged rows as a tokenizer gives them are those padded beforehand; text is left aside."""
    from privet.errors import InvalidArgument

    torch.manual_seed(0)
    ragged, padded = [], []
    for i in range(16):
        n = 2 + i % 5
        ids = torch.randint(1, WORDS, (n,)).tolist()
        ragged.append({"input_ids": ids, "label": i % 2, "text": "of any length"})
        ids, mask = (ids + [0] * 5)[:5], ([1] * n + [0] * 5)[:5]
        padded.append({"input_ids": ids, "attention_mask": mask, "labels": i % 2})
    one = trained(tmp_path, save_strategy="no", data=ragged, max_length=5)
    other = trained(tmp_path, save_strategy="no", data=padded)
    for p, q in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(p, q)
    one.args.remove_unused_columns = True
    assert one.evaluate(ragged)["eval_loss"] == pytest.approx(one.evaluate(padded)["eval_loss"])
    with pytest.raises(InvalidArgument, match="max_length=128") as error:
        trained(tmp_path, save_strategy="no", data=ragged)
    assert "\n" not in str(error.value)
    sizes = []

    def collate(some):
        sizes.append(len(some))
        return {"input_ids": torch.ones(len(some), 5, dtype=torch.long),
                "labels": torch.tensor([row["label"] for row in some])}  # fmt: skip

    trained(tmp_path, save_strategy="no", data=ragged, data_collator=collate)
    assert set(sizes) == {1}


@quietly
@pytest.mark.parametrize("kind", ["words", "several labels", "numbers", "permuted words", "spans"])
def test_the_losses_are_those_of_the_model_itself(tmp_path, kind):
    """GPT-2 says nothing of its loss, and was trained to copy its input; several labels as numbers."""
    bert()
    import transformers as T

    from privet.errors import InvalidArgument

    tiny = {"vocab_size": WORDS, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 8}
    torch.manual_seed(0)
    bert_config = T.BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=8, num_labels={"numbers": 1, "spans": 2}.get(kind, 3),
    )  # fmt: skip
    ids = [row["input_ids"] for row in rows()]
    made, targets = {
        "words": (lambda: T.GPT2LMHeadModel(T.GPT2Config(**tiny)), ids),
        "several labels": (lambda: T.BertForSequenceClassification(bert_config), [[1.0, 0.0, 1.0]] * 16),
        "numbers": (lambda: T.BertForSequenceClassification(bert_config), [0.5] * 16),
        "permuted words": (
            lambda: T.XLNetLMHeadModel(T.XLNetConfig(vocab_size=WORDS, d_model=8, n_layer=1, n_head=1, d_inner=8)),
            ids,
        ),
        "spans": (lambda: T.BertForQuestionAnswering(bert_config), [1] * 16),
    }[kind]  # fmt: skip
    name = "start_positions" if kind == "spans" else "labels"
    data = [{"input_ids": i, name: t} for i, t in zip(ids, targets, strict=True)]
    if kind in ("permuted words", "spans"):
        with pytest.raises(InvalidArgument, match="override example_losses"):
            trained(tmp_path, save_strategy="no", data=data, model=made())
        return
    trainer = trained(tmp_path, save_strategy="no", data=data, model=made())
    model = trainer.model.eval()
    records = as_rows({n: torch.tensor([row[n] for row in data[:6]]) for n in data[0]})
    batch = records.batch(records.take(np.arange(6)), step=0, last=True)
    with torch.no_grad():
        own = torch.stack([
            model(**{n: c[i : i + 1] for n, c in batch.items()}).loss for i in range(6)
        ])  # fmt: skip
        torch.testing.assert_close(trainer.example_losses(model, batch), own)


@quietly
def test_a_trainer_with_a_loss_for_a_batch_is_refused(tmp_path):
    from privet.errors import InvalidArgument

    with pytest.raises(InvalidArgument, match="example_losses"):
        trained(tmp_path, compute_loss_func=lambda *some: 0.0)


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


def test_an_attention_mask_can_be_traced():
    """transformers looks whether a mask is all ones, unless it is told that a trace is made."""
    ids = torch.tensor([row["input_ids"] for row in rows()])
    data = {"input_ids": ids, "attention_mask": (ids > 3).long(), "labels": torch.arange(16) % 2}
    model = bert().eval()

    def losses(model, batch):
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return nn.functional.cross_entropy(logits, batch["labels"], reduction="none")

    with private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data, SCHEDULE, losses=losses,
        rng=seeded(0), delta=1e-5, step=StepOptions(independence="enforced"),
    ) as training:  # fmt: skip
        assert len(list(training)) == 3
    assert not torch.jit.is_tracing()
