"""The sum of one step, micro-batch by micro-batch, up to its release."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from privet.nets import ClippedSum

LONGEST_SUM = 4096
"""Most rows that are summed in float32 before they join a float64 sum (test_rounding.py)."""
LONGEST_NARROW_STEP = 1024
"""Most examples expected of a step that is summed in float32 throughout (test_rounding.py)."""
FIRST_MICRO_BATCH = 32
"""Examples of the very first micro-batch, where the size is to follow from the model's shapes."""


def longest(views: int) -> int:
    """The largest micro-batch, in examples of so many views.

    >>> longest(3)
    1365
    """
    return max(1, LONGEST_SUM // views)


def is_wide(expected_batch: float, micro_batch: int, processes: int) -> bool:
    """Whether a step is summed in float64, from public facts alone."""
    return processes > 1 or expected_batch > min(micro_batch, LONGEST_NARROW_STEP)


@final
class StepSum:
    """Adds up the clipped sums of micro-batches: in the model's precision, or in float64.

    A *narrow* step adds everything up in the model's precision, where its noise is added too. A
    *wide* one adds each micro-batch to a float64 sum and gets its noise there; it is for steps that
    are expected to take several micro-batches or several processes, whose rounding would pile up.
    The two are rounded to different grids, so which one a step is must follow from public facts
    (`is_wide`, of the *expected* batch), never from the sample.
    """

    def __init__(self, part: ClippedSum) -> None:
        self.part = part
        self._wide: Tensor | None = None
        self._is_wide, self._taken = False, 0

    def begin(self) -> None:
        """Start a step."""
        self.part.reset()
        self._is_wide, self._taken = False, 0

    def take_in(self, *, wide: bool) -> None:
        """The micro-batch in `part` is complete; `wide` is the same for all of a step."""
        self._is_wide = wide
        if not wide:
            return
        if self._wide is None:
            self._wide = torch.empty_like(self.part.buffer, dtype=torch.float64)
        if self._taken:
            self._wide.add_(self.part.flat)
        else:
            self._wide.copy_(self.part.flat)
        self.part.empty()
        self._taken += 1

    @property
    def total(self) -> Tensor:
        """The sum, to be released in place."""
        if not self._is_wide:
            return self.part.flat
        assert self._wide is not None
        return self._wide

    def assign_to(self, model: nn.Module, *, divisor: float) -> None:
        """Set the parameters' .grad to what was released over the divisor."""
        if self._is_wide:
            self.part.overwrite(self.total.div_(divisor))
            divisor = 1.0
        self.part.assign_to(model, divisor=divisor)
