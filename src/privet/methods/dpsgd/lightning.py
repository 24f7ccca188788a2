"""Lightning: a module whose `training_step` gives one loss a row, trained by private steps."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import lightning
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor

from privet.errors import InvalidArgument
from privet.methods.dpsgd.dataset_rows import Batch
from privet.methods.dpsgd.private import private
from privet.methods.dpsgd.private_options import Charging, StepOptions
from privet.methods.dpsgd.schedule import Schedule


class PrivateModule(lightning.LightningModule):  # type: ignore[misc]
    """Your module in private steps: `trainer.fit(PrivateModule(module, dataset, schedule, ...))`.

    `module.training_step(batch, step)` returns the losses of the rows, one each (or a dict with
    them as "loss"); `x, y = batch` works in it, and what it logs is dropped, being exact.
    `module.configure_optimizers()` returns one optimiser, perhaps with one scheduler, which is
    stepped after every private step. Lightning keeps its loop and callbacks; use `max_epochs=1`,
    for the schedule says when to stop. `settings` go to `private`. Validation during `fit` needs
    `charging=Charging(evaluation="public")` or `"unprotected"` among them: what the records are
    that it looks at.

    **Guarantee**: `training_run.guarantee`.
    """

    def __init__(
        self, module: lightning.LightningModule, dataset: Any, schedule: Schedule, **settings: Any
    ) -> None:
        super().__init__()
        self.automatic_optimization, self._told = False, False
        self.module, charging = module, settings.get("charging", Charging())
        self._evaluation = charging.evaluation
        optimizer, scheduler = _one_of_each(module.configure_optimizers())
        step = settings.get("step", StepOptions())
        self._check = step.independence != "assumed"
        if scheduler is not None:
            settings["step"] = replace(step, scheduler=scheduler)
        self.training_run = private(module, optimizer, dataset, schedule, **settings)
        kind = lightning.LightningModule
        hooks = [n for n in dir(kind) if n.startswith("on_") and callable(getattr(kind, n))]
        for name in ("validation_step", "test_step", "predict_step", *hooks):
            if is_overridden(name, module):
                own = getattr(self, name) if name in type(self).__dict__ else None
                setattr(self, name, _delegated(self, name, own))

    def train_dataloader(self) -> Any:
        """Batches as the sampler draws them; one that says no length would be read ahead."""
        self._batches = _Batches(self.training_run)
        return self._batches

    def on_train_start(self) -> None:
        """Try the module's losses on made-up rows, before anything is charged."""
        if self.trainer.max_steps not in (-1, None):
            raise InvalidArgument(
                "max_steps", self.trainer.max_steps, "left out", "the schedule says how many steps"
            )
        if self._check and self.training_run.steps_done < self.training_run.schedule.steps:
            self.training_run.check(lambda _, batch: self._losses(batch))

    def on_train_end(self) -> None:
        """Leave the private loop, which may have been stopped early."""
        self._batches.close()

    def training_step(self, batch: Batch, index: int) -> None:
        """One part of a private step; how many parts there were tells of the records."""
        if not isinstance(batch, Batch):
            raise InvalidArgument(
                "train_dataloaders", type(batch).__name__, "left out of fit, and of a datamodule",
                "PrivateModule(module, dataset, schedule) draws the batches of private steps",
            )  # fmt: skip
        self.training_run.step(self._losses(batch))
        if batch.last:  # else checkpoints would wait for steps that Lightning does not see
            progress = self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
            progress.increment_ready()
            progress.increment_completed()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put the promise beside the weights."""
        checkpoint["guarantee"] = self.training_run.guarantee.to_dict()

    def _losses(self, batch: Batch) -> Tensor:
        """What the module's `training_step` returns for a batch and the number of its step."""
        with self._silent():
            made = self.module.training_step(batch, batch.step)
        losses: Tensor = made["loss"] if isinstance(made, dict) else made
        return losses

    @contextmanager
    def _silent(self) -> Iterator[None]:
        """Inside, what the module logs is dropped."""
        self.module.log = self.module.log_dict = self._drop
        try:
            yield
        finally:
            del self.module.log, self.module.log_dict

    def _drop(self, *args: Any, **kwargs: Any) -> None:
        if not self._told:
            warnings.warn(
                "self.log in training_step is dropped: it speaks of private records, exactly; log "
                "in validation_step, of public ones",
                UserWarning,
                stacklevel=2,
            )
        self._told = True

    def on_validation_start(self) -> None:
        """Refuse an evaluation during training of which nobody said what its records are."""
        if self.trainer.state.fn == "fit" and self._evaluation is None:
            raise InvalidArgument(
                "evaluation", None, "'public' or 'unprotected', where fit validates",
                "charging=Charging(evaluation='public'), or limit_val_batches=0",
            )  # fmt: skip

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The module itself."""
        out: Tensor = self.module(*args, **kwargs)
        return out

    def transfer_batch_to_device(self, batch: Any, device: Any, index: int) -> Any:
        """Private batches are where the model is already."""
        moved = super().transfer_batch_to_device
        return batch if isinstance(batch, Batch) else moved(batch, device, index)

    def configure_optimizers(self) -> Any:
        """That of the private run, which alone makes steps with it."""
        return self.training_run.optimizer


def _delegated(outer: PrivateModule, name: str, own: Any) -> Any:
    """A step or hook of the inner module, which may log as if Lightning had called it.

    What hooks of training log is dropped. `own` is what the outer module does first.
    """
    inner = outer.module

    @functools.wraps(getattr(inner, name))
    def step(*args: Any, **kwargs: Any) -> Any:
        if own is not None:
            own(*args, **kwargs)
        inner._current_fx_name = outer._current_fx_name
        try:
            with outer._silent() if name.startswith("on_train") else nullcontext():
                return getattr(inner, name)(*args, **kwargs)
        finally:
            inner._current_fx_name = None

    return step


def _one_of_each(made: Any) -> tuple[Any, Any]:
    """The optimiser and the scheduler, or None, of what `configure_optimizers` may return."""
    if isinstance(made, dict):
        made = made["optimizer"], made.get("lr_scheduler")
    elif isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], list):
        made = _only(made[0]), _only(made[1])
    else:
        made = _only(made), None
    optimizer, scheduler = made
    return optimizer, scheduler["scheduler"] if isinstance(scheduler, dict) else scheduler


def _only(some: Any) -> Any:
    if not isinstance(some, list | tuple):
        return some
    if len(some) != 1:
        raise InvalidArgument("configure_optimizers", f"{len(some)} of a kind", "one of each")
    return some[0]


class _Batches:
    def __init__(self, training: Any) -> None:
        self._training = training

    def __len__(self) -> int:
        return sys.maxsize

    def __iter__(self) -> Iterator[Batch]:
        opened: Iterator[Batch] = iter(self._training)
        self._open: Any = opened
        return opened

    def close(self) -> None:
        """End the iteration."""
        self._open.close()
