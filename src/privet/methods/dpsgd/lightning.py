"""Lightning: a module whose `training_step` gives one loss a row, trained by private steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import lightning
from torch import Tensor

from privet.methods.dpsgd.private import private
from privet.methods.dpsgd.records import Batch
from privet.methods.dpsgd.schedule import Schedule


class PrivateModule(lightning.LightningModule):  # type: ignore[misc]
    """Your module in private steps: `trainer.fit(PrivateModule(module, dataset, schedule, ...))`.

    `module.training_step(batch, index)` returns the losses of the rows, one each, and
    `module.configure_optimizers()` one optimiser. Lightning keeps its loop and callbacks; use
    `max_epochs=1`, for the schedule says when to stop. `settings` go to `private`.

    **Guarantee**: `training_run.guarantee`.
    """

    def __init__(
        self, module: lightning.LightningModule, dataset: Any, schedule: Schedule, **settings: Any
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.module = module
        self.training_run = private(
            module, module.configure_optimizers(), dataset, schedule, **settings
        )

    def train_dataloader(self) -> Any:
        """Batches as the sampler draws them; one that says no length would be read ahead."""
        return _Batches(self.training_run)

    def training_step(self, batch: Batch, index: int) -> None:
        """One part of a private step."""
        self.training_run.step(self.module.training_step(batch, index))

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


class _Batches:
    def __init__(self, training: Any) -> None:
        self._training = training

    def __len__(self) -> int:
        return sys.maxsize

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._training)
