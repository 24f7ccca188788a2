"""`transformers.Trainer`, private: the same arguments, a schedule and a noise source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerControl, default_data_collator
from transformers.trainer_utils import TrainOutput

from privet.errors import InvalidArgument
from privet.methods.dpsgd.dataset_rows import Batch
from privet.methods.dpsgd.private import Training, private
from privet.methods.dpsgd.private_options import Charging, StepOptions
from privet.methods.dpsgd.schedule import Schedule

_REFUSED: dict[str, tuple[Any, str]] = {
    "gradient_accumulation_steps": (
        1, "sample_rate of the schedule sets the batch, private_settings={'step': "
        "StepOptions(micro_batch=n)} the rows at a time",
    ),
    "load_best_model_at_end": (False, "checkpoint-N folders hold the models that were saved"),
    "fp16": (False, "bf16=True is the half precision that works"),
}  # fmt: skip


class PrivateTrainer(Trainer):  # type: ignore[misc]
    """A `Trainer` whose `train` makes the steps of a schedule; prediction and saving are its own.

    Optimiser, learning-rate schedule, callbacks, when to log, evaluate and save, and where to, come
    from `args` as usual; batch sizes, epochs and gradient clipping from the schedule. Training
    losses are not logged: they are exact. `private_settings` go to `private` (rng, ledger, delta,
    sampling, ...). Rows are columns of equal shape (pad to one length beforehand). For another loss
    override `example_losses`: one loss a row.

    `evaluation` says what the `eval_dataset` is, where it is evaluated during training: "public",
    or "unprotected", which the guarantee then lists as a premise that is not met. Callbacks
    may then end the run early; the whole schedule is charged all the same.

    **Guarantee**: `training.guarantee`, saved with the model as guarantee.json.
    """

    control: TrainerControl

    def __init__(
        self,
        *args: Any,
        schedule: Schedule,
        private_settings: dict[str, Any],
        evaluation: Literal["public", "unprotected"] | None = None,
        **kw: Any,
    ):
        collator = args[2] if len(args) > 2 else kw.get("data_collator")
        if collator not in (None, default_data_collator):
            raise InvalidArgument(
                "data_collator", type(collator).__name__, "none: rows of one shape need no other",
                "pad every record to one public length, padding='max_length' of the tokenizer: "
                "that of the longest in a batch tells of the others",
            )  # fmt: skip
        super().__init__(*args, **kw)
        self.schedule, self.evaluation = schedule, evaluation
        self.private_settings = private_settings
        self.training: Training | None = None
        for name, (expected, hint) in _REFUSED.items():
            if (given := getattr(self.args, name, expected)) != expected:
                raise InvalidArgument(name, given, f"{expected!r} for private training", hint)
        if self.args.eval_strategy != "no":
            self._check_evaluation()

    def _check_evaluation(self) -> None:
        """Refuse an evaluation during training of which nobody said what its records are."""
        if self.evaluation is None:
            raise InvalidArgument(
                "evaluation", None, "'public' or 'unprotected', where eval_strategy is not 'no'",
                "only you know whether the eval_dataset may be looked at without noise",
            )  # fmt: skip

    def train(self, *args: Any, **kw: Any) -> TrainOutput:
        """All steps, unless a callback stops them; nothing of a `Trainer`'s own loop is used."""
        if args or kw:
            raise InvalidArgument("train", [*args, *kw], "called without arguments")
        self.create_optimizer_and_scheduler(num_training_steps=self.schedule.steps)
        self.model.train()
        self.state.max_steps = self.schedule.steps
        self.state.compute_steps(self.args, self.schedule.steps)
        handler = self.callback_handler
        handler.optimizer, handler.lr_scheduler = self.optimizer, self.lr_scheduler
        self.control = handler.on_train_begin(self.args, self.state, self.control)
        settings = dict(self.private_settings)
        step = replace(settings.pop("step", StepOptions()), scheduler=self.lr_scheduler)
        charging = replace(settings.pop("charging", Charging()), evaluation=self.evaluation)
        with private(
            self.model, self.optimizer, self.train_dataset, self.schedule, losses=self._losses,
            step=step, charging=charging, **settings,
        ) as training:  # fmt: skip
            self.training = training
            for _ in training:
                self._after_step(training)
                if self.control.should_training_stop:
                    break
        self.control = handler.on_train_end(self.args, self.state, self.control)
        return TrainOutput(training.steps_done, float("nan"), {"epsilon": training.epsilon_spent})

    def _losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """`example_losses`, in bfloat16 where the arguments ask for it."""
        with torch.autocast(self.args.device.type, torch.bfloat16, enabled=bool(self.args.bf16)):
            return self.example_losses(model, batch)

    def _after_step(self, training: Training) -> None:
        """Run callbacks, and what they ask for: a line in the log, an evaluation, a save."""
        handler, last = self.callback_handler, training.steps_done == self.schedule.steps
        self.state.global_step = training.steps_done
        self.state.epoch = training.steps_done * float(self.schedule.rates.mean())
        self.control = handler.on_step_end(self.args, self.state, self.control)
        if last:
            self.control = handler.on_epoch_end(self.args, self.state, self.control)
        if self.control.should_log:
            rate = self.optimizer.param_groups[0]["lr"]
            self.log({"learning_rate": rate, "epsilon": training.epsilon_spent})
        if self.control.should_evaluate:
            self._check_evaluation()  # a callback may ask for one
            self._determine_best_metric(self.evaluate(), trial=None)
            self.model.train()
        if self.control.should_save:
            self.save_model(f"{self.args.output_dir}/checkpoint-{training.steps_done}")
            self.control = handler.on_save(self.args, self.state, self.control)

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
            self.training.save_guarantee(output_dir or self.args.output_dir)
