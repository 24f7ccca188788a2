"""`transformers.Trainer`, private: the same arguments, a schedule and a noise source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_utils import TrainOutput

from privet.errors import InvalidArgument
from privet.methods.dpsgd.loop import Training
from privet.methods.dpsgd.private import private
from privet.methods.dpsgd.records import Batch
from privet.methods.dpsgd.schedule import Schedule


class PrivateTrainer(Trainer):  # type: ignore[misc]
    """A `Trainer` whose `train` makes the steps of a schedule; prediction and saving are its own.

    Optimiser, learning-rate schedule, callbacks and where to save come from `args` as usual; batch
    sizes, epochs and gradient clipping from the schedule. `private_settings` go to `private`
    (ledger, delta, groups, ...). Rows are columns of equal shape (pad to one length beforehand).
    For another loss override `example_losses`: one loss a row.

    **Guarantee**: `training.guarantee`, saved with the model as guarantee.json.
    """

    def __init__(self, *args: Any, schedule: Schedule, private_settings: dict[str, Any], **kw: Any):
        super().__init__(*args, **kw)
        self.schedule, self.private_settings = schedule, private_settings
        self.training: Training | None = None

    def train(self, *args: Any, **kw: Any) -> TrainOutput:
        """All steps; nothing of a `Trainer`'s own loop is used."""
        if args or kw:
            raise InvalidArgument("train", [*args, *kw], "called without arguments")
        self.create_optimizer_and_scheduler(num_training_steps=self.schedule.steps)
        self.model.train()
        self.state.max_steps = self.schedule.steps
        handler, told = self.callback_handler, (self.args, self.state, self.control)
        handler.optimizer, handler.lr_scheduler = self.optimizer, self.lr_scheduler
        handler.on_train_begin(*told)
        with private(
            self.model, self.optimizer, self.train_dataset, self.schedule,
            scheduler=self.lr_scheduler, **self.private_settings,
        ) as training:  # fmt: skip
            self.training = training
            for batch in training:
                training.step(self.example_losses(self.model, batch))
                if batch.last:
                    self.state.global_step = training.steps_done
                    handler.on_step_end(*told)
        handler.on_train_end(*told)
        return TrainOutput(training.steps_done, float("nan"), {"epsilon": training.epsilon_spent})

    def example_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """One loss a row, of labels that are classes, numbers or words (-100: none)."""
        inputs = {name: batch[name] for name in batch.keys()}  # noqa: SIM118
        labels = inputs.pop("labels")
        more = {"labels": labels} if self.model.config.is_encoder_decoder else {}
        logits = model(**inputs, **more).logits
        if labels.is_floating_point():
            squares: Tensor = (logits.view_as(labels) - labels).square()
            return squares if labels.dim() == 1 else squares.flatten(1).mean(1)
        if labels.dim() == 1:
            return nn.functional.cross_entropy(logits, labels, reduction="none")
        if getattr(self.model, "loss_type", "") == "ForCausalLM":
            logits, labels = logits[:, :-1], labels[:, 1:]
        each: Tensor = nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return each.sum(1) / (labels != -100).sum(1).clamp(min=1)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The model, and what is promised for it."""
        super().save_model(output_dir, _internal_call)
        if self.training is not None:
            folder = Path(output_dir or self.args.output_dir)
            told = json.dumps(self.training.guarantee.to_dict(), indent=2)
            (folder / "guarantee.json").write_text(told)
