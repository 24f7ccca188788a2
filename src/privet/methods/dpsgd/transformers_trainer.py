"""`transformers.Trainer`, private: the same arguments, a schedule and a noise source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerControl, default_data_collator
from transformers.trainer_utils import TrainOutput

from privet import _check
from privet.errors import InvalidArgument
from privet.gradients import device
from privet.methods.dpsgd.batch_independence import make_up_rows
from privet.methods.dpsgd.dataset_rows import Batch, CollatedRows, as_rows
from privet.methods.dpsgd.private import Training, private
from privet.methods.dpsgd.private_options import Charging, StepOptions
from privet.methods.dpsgd.schedule import Schedule

_REFUSED: dict[str, tuple[Any, str]] = {
    "gradient_accumulation_steps": (
        1, "sample_rate of the schedule sets the batch, private_settings={'step': "
        "StepOptions(micro_batch=n)} the rows at a time",
    ),
    "fp16": (False, "bf16=True is the half precision that works"),
}  # fmt: skip


class PrivateTrainer(Trainer):  # type: ignore[misc]
    """A `Trainer` whose `train` makes the steps of a schedule; prediction and saving are its own.

    Optimiser, learning-rate schedule, callbacks, when to log, evaluate and save, and where to, come
    from `args` as usual; batch sizes, epochs and gradient clipping from the schedule. Training
    losses are not logged: they are exact. `private_settings` go to `private` (rng, ledger, delta,
    sampling, ...). For another loss override `example_losses`: one loss a row.

    `data_collator` gets one record at a time, so that nothing of a record depends on its company.
    `max_length` pads or cuts every record to that many tokens; without it all must have one length.

    `evaluation` says what the `eval_dataset` is, where it is evaluated during training: "public",
    or "unprotected", which the guarantee then lists as a premise that is not met. Callbacks
    may then end the run early, and `load_best_model_at_end` choose a model; the whole schedule is
    charged all the same.

    **Guarantee**: `training.guarantee`, saved with the model as guarantee.json.
    """

    control: TrainerControl

    def __init__(
        self,
        *args: Any,
        schedule: Schedule,
        private_settings: dict[str, Any],
        evaluation: Literal["public", "unprotected"] | None = None,
        max_length: int | None = None,
        **kw: Any,
    ):
        super().__init__(*args, **kw)
        self.schedule, self.evaluation = schedule, evaluation
        self.private_settings = private_settings
        self.training: Training | None = None
        self.max_length = None if max_length is None else _check.count("max_length", max_length)
        if self.compute_loss_func or type(self).compute_loss is not Trainer.compute_loss:
            raise InvalidArgument(
                "compute_loss", "a function of one's own", "left alone: it is one loss for a batch",
                "override example_losses(model, batch), which returns one loss a row",
            )  # fmt: skip
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

    def train(self, resume_from_checkpoint: str | bool | None = None, **kw: Any) -> TrainOutput:
        """All steps, unless a callback stops them; nothing of a `Trainer`'s own loop is used.

        A run goes on from the `checkpoints` of `private_settings`, where there are any, by itself.
        """
        if any(value is not None for value in kw.values()):
            raise InvalidArgument("train", kw, "called without them")
        if resume_from_checkpoint and "checkpoints" not in self.private_settings:
            raise InvalidArgument(
                "resume_from_checkpoint", resume_from_checkpoint, "left out",
                "private_settings={'checkpoints': Checkpoints('folder')} saves what a private run "
                "needs and goes on from there; a checkpoint-N folder does not say what was charged",
            )  # fmt: skip
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
        rows = self._rows()
        self._check_losses(rows)
        with private(
            self.model, self.optimizer, rows, self.schedule, losses=self._losses,
            step=step, charging=charging, **settings,
        ) as training:  # fmt: skip
            self.training = training
            for _ in training:
                self._after_step(training)
                if self.control.should_training_stop:
                    break
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint:
            self._load_best_model()
        self.control = handler.on_train_end(self.args, self.state, self.control)
        untold: Any = None  # the training loss is exact
        return TrainOutput(training.steps_done, untold, {"epsilon": training.epsilon_spent})

    def _rows(self) -> Any:
        """The records, each collated and padded by itself; columns of equal shape as they are."""
        rows = self.train_dataset
        by_name = not isinstance(rows, Mapping) and len(rows) and isinstance(rows[0], Mapping)
        if not by_name and self.data_collator is default_data_collator:
            return rows
        padded = self._padded(rows)
        for i in range(min(len(padded), _TRIED)):
            padded[i]
        return padded

    def _padded(self, rows: Any) -> _PaddedRows:
        collate = self._get_collator_with_removed_columns(self.data_collator)
        fill = getattr(self.processing_class, "pad_token_id", None)
        if fill is None:
            fill = getattr(self.model.config, "pad_token_id", None)
        return _PaddedRows(CollatedRows(rows, collate), self.max_length, fill or 0)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Batches to evaluate, of rows that are padded as those of the training."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        several = isinstance(rows, str | Mapping)  # named sets, which are handed here one by one
        if self.max_length is None or several or self.data_collator is not default_data_collator:
            return super().get_eval_dataloader(eval_dataset)
        return super().get_eval_dataloader(self._padded(rows))

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
            best = self._determine_best_metric(self.evaluate(), trial=None)
            self.control.should_save |= best and self.args.save_strategy == "best"
            self.model.train()
        if self.control.should_save:
            self.save_model(f"{self.args.output_dir}/checkpoint-{training.steps_done}")
            best_folder = f"{self.args.output_dir}/checkpoint-{self.state.best_global_step}"
            if Path(best_folder).exists():
                self.state.best_model_checkpoint = best_folder
            self.control = handler.on_save(self.args, self.state, self.control)

    def example_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """One loss a row, of labels that are classes, numbers or words (-100: none)."""
        inputs = {name: batch[name] for name in batch.keys()}  # noqa: SIM118
        labels = inputs.pop("labels", None)
        if labels is None:
            raise InvalidArgument(
                "the columns of train_dataset", [*inputs], "with 'labels'",
                "for other targets override example_losses(model, batch): one loss a row",
            )  # fmt: skip
        more = {"labels": labels} if self.model.config.is_encoder_decoder else {}
        logits = model(**inputs, **more).logits
        if labels.is_floating_point():
            return self._losses_of_numbers(logits.view_as(labels), labels)
        how: Any = {"reduction": "none", "label_smoothing": self.args.label_smoothing_factor}
        if labels.dim() == 1:
            return nn.functional.cross_entropy(logits, labels, **how)
        if not more and getattr(self.model, "loss_type", None) in (None, "ForCausalLM"):
            logits, labels = logits[:, :-1], labels[:, 1:]
        each: Tensor = nn.functional.cross_entropy(logits.transpose(1, 2), labels, **how)
        return each.sum(1) / (labels != -100).sum(1).clamp(min=1)

    def _losses_of_numbers(self, found: Tensor, labels: Tensor) -> Tensor:
        """Squares; for several labels of 0 and 1 cross entropies, as transformers takes them."""
        if labels.dim() == 1:
            return (found - labels).square()
        kind = self.model.config.problem_type
        if kind == "multi_label_classification" or (kind is None and self.model.num_labels > 1):
            each = nn.functional.binary_cross_entropy_with_logits(found, labels, reduction="none")
        else:
            each = (found - labels).square()
        return each.flatten(1).mean(1)

    def _check_losses(self, rows: Any) -> None:
        """Refuse where `example_losses` is not what the model itself makes of its labels.

        Tried on a made-up row; a model without a loss of its own, or an overridden method, is
        believed.
        """
        records = as_rows(rows)
        own = type(self).example_losses is not PrivateTrainer.example_losses
        if own or self.args.label_smoothing_factor or not records.names:
            return
        columns = make_up_rows(records.take(np.zeros(0, dtype=np.int64)), watched=1, others=0)
        batch = records.batch(device.move(columns, self.args.device), step=0, last=True)
        training, _ = self.model.training, self.model.eval()
        try:
            with torch.no_grad():
                theirs: Tensor | None = getattr(self.model(**batch), "loss", None)
                if theirs is None:
                    return
                ours = self.example_losses(self.model, batch).mean()
        finally:
            self.model.train(training)
        if not torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4):
            raise InvalidArgument(
                "example_losses", f"{ours:.4g} for a made-up row",
                f"{theirs:.4g}, which is the model's own loss of it",
                "override example_losses(model, batch), which returns one loss a row",
            )  # fmt: skip

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The model, and what is promised for it."""
        super().save_model(output_dir, _internal_call)
        if self.training is not None:
            self.training.save_guarantee(output_dir or self.args.output_dir)


_TRIED = 64
"""Records whose length is looked at before anything is charged."""


@final
class _PaddedRows:
    """Records of one public length: each is padded or cut by itself."""

    def __init__(self, rows: CollatedRows, length: int | None, fill: int) -> None:
        self.rows, self.length = rows, length
        self.fill = {"input_ids": fill, "labels": -100}
        self.shapes: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        row: dict[str, Tensor] = self.rows[i]
        if self.length is not None:
            if "input_ids" in row:
                row.setdefault("attention_mask", torch.ones_like(row["input_ids"]))
            row = {name: self._fit(name, column) for name, column in row.items()}
        shapes = {name: tuple(column.shape) for name, column in row.items()}
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            name = next(n for n in (*shapes, *self.shapes) if shapes.get(n) != self.shapes.get(n))
            raise InvalidArgument(
                "train_dataset", f"{name} of {self.shapes.get(name)} and of {shapes.get(name)}",
                "records of one shape",
                "PrivateTrainer(max_length=128) pads or cuts each to so many tokens: that of the "
                "longest in a batch tells of the others",
            )  # fmt: skip
        return row

    def _fit(self, name: str, column: Tensor) -> Tensor:
        """One number a token: padded or cut; another column: itself."""
        assert self.length is not None
        if column.dim() != 1 or column.is_floating_point():
            return column
        padded = column.new_full((self.length,), self.fill.get(name, 0))
        padded[: len(column)] = column[: self.length]
        return padded
