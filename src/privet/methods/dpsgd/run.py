"""What belongs to a run of `private` besides its steps: settings, diagnostics and its name."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from torch.optim.lr_scheduler import LRScheduler

from privet import premises
from privet.guarantee import Premise
from privet.methods.dpsgd.checkpoint import Checkpoints
from privet.methods.dpsgd.reading import Reader
from privet.methods.dpsgd.records import Augment
from privet.methods.dpsgd.schedule import Array
from privet.nets import ClippedSum, Clipping

MakeClipping = Callable[[float], Clipping]


@dataclass(kw_only=True)
class Diagnostics:
    """Exact facts about the run, *not* covered by its guarantee: look, but do not publish.

    Nothing of it is printed or stored unless `private(..., show_unprotected=True)` asks for it.
    """

    examples: int = 0
    clipped: int = 0
    non_finite: int = 0
    loss: float = float("nan")
    """Mean loss of the last step that had examples."""

    def add(self, step: ClippedSum, *, within: int, losses: float) -> None:
        """Count a step: its examples, those within the bound, and the sum of their losses."""
        examples = step.examples_unprotected
        self.examples += examples
        self.clipped += examples - within
        self.non_finite += step.non_finite_unprotected
        if examples:
            self.loss = losses / examples


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run does besides its schedule; none of it changes the price."""

    clipping: MakeClipping
    micro_batch: int | None
    views: int
    augment: Augment | None
    learning_rates: Array | None
    scheduler: LRScheduler | None
    checkpoints: Checkpoints | None
    charge_block: int
    reader: Reader
    limit: float | None = None
    """The epsilon at which all attempts of a resumed run end."""
    rows_each: int = 1
    """Rows of a user in a step; `views` counts them too."""
    check_mixing: bool = True
    batch_invariant: bool = False
    show_unprotected: bool = False
    evaluation: tuple[Premise, ...] = ()
    """What is known of the records that the model is evaluated on during training."""


EVALUATIONS = {
    "public": premises.PUBLIC_EVALUATION,
    "unprotected": premises.UNPROTECTED_EVALUATION,
}


def new_run() -> str:
    """A name that no other run has."""
    return f"dpsgd-{secrets.token_hex(8)}"
