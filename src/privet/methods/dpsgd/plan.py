"""What a DP-SGD run will do and cost, from public facts alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from privet import premises
from privet.data.records import PublicFacts, Records
from privet.guarantee import Guarantee, Premise, Unit
from privet.loss import Gaussian, PrivacyLoss, compose
from privet.loss.closed_form import closed_form_claim
from privet.methods.contract import Plan
from privet.methods.dpsgd.schedule import Array, Schedule
from privet.noise.grid import noise_scale

CLOSED = premises.CLOSED_FORM, premises.EXACT_SUM, premises.ALONE_ON_A_GRID
ENGINE = premises.NO_MIXING, premises.ROUNDED_SUM, premises.SAME_IN_COMPANY

PREMISES = (
    premises.CHARGED_FIRST,
    premises.EXACT_LAW,
    premises.SETTINGS,
    premises.STEPS_ONLY,
)

_MEAN, _CONFIDENCE = 0.8660254037844386, 0.5
"""Roots of the shares of `centre_mu`^2, three quarters (from below) and one."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DPSGDPlan(Plan):
    """All settings of a run. Learning rates multiply the averaged gradient divided by C."""

    facts: PublicFacts
    schedule: Schedule
    learning_rates: Array
    momentum: float
    centre_mu: float = 0.0
    """What the private mean and the measure of confidence cost together, as the mu of a Gaussian
    release; 0 for none."""
    constant: float = 0.0
    """The constant feature of a linear head."""
    rows_each: int = 1
    """Rows of a user in a step, where users are protected."""
    closed: bool = False
    """Whether sums are those of the closed form, exact, in place of the per-example engine's."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then what is released."""

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The cost of the private mean and of all steps."""
        steps = self.schedule.loss()
        return compose([*self.beside, steps]) if self.beside else steps

    @property
    def theorem(self) -> str:
        return "exact composition of Gaussian releases on random samples"

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (
            premises.POISSON_COINS,
            premises.PUBLIC_DIVISOR,
            *(CLOSED if self.closed else ENGINE),
            *clipped(self.facts.unit, self.rows_each),
            *PREMISES,
        )

    @property
    def claim(self) -> Guarantee | None:
        """What the closed form of tight-privacy-cost states."""
        return replace(closed_form_claim(self.loss, self.facts.delta), unit=self.unit)

    @property
    def steps(self) -> int:
        return self.schedule.steps

    @property
    def beside(self) -> tuple[Gaussian, ...]:
        """The cost of the private mean and, with classes, of the measure of confidence."""
        if self.centre_mu == 0.0:
            return ()
        measured = self.closed and self.facts.outputs > 1
        shares = (_MEAN, _CONFIDENCE) if measured else (1.0,)
        return tuple(Gaussian(mu=share * self.centre_mu) for share in shares)

    def centre_scale(self, dimension: int) -> float:
        """The noise on the sum of rows of the unit ball."""
        return self._scale(0, dimension)

    def confidence_scale(self, dimension: int) -> float:
        """The noise on the sum of what measures confidence, vectors of the unit ball too."""
        return self._scale(1, dimension)

    def _scale(self, which: int, dimension: int) -> float:
        z = 1.0 / self.beside[which].mu
        return noise_scale(sensitivity=1.0, noise_multiplier=z, dimension=dimension)

    @property
    def absolute_learning_rates(self) -> Array:
        """The same rates for a gradient that is not divided by C."""
        return self.learning_rates / self.schedule.bounds

    def targets(self, records: Records) -> Tensor:
        """What to predict, as losses take it: class numbers, or a column of numbers."""
        if self.facts.outputs > 1:
            return torch.from_numpy(records.targets.astype(np.int64))
        return torch.from_numpy(records.targets.astype(np.float32))[:, None]

    def summary(self) -> dict[str, Any]:
        s = self.schedule
        return {
            "steps": s.steps,
            "sample_rate": float(s.rates[0]),
            "clipping_bound": float(s.bounds[0]),
            "noise_multiplier": float(s.noise_multipliers[0]),
            "learning_rate": float(self.learning_rates[0]),
            "momentum": self.momentum,
            "centre_mu": self.centre_mu,
            "rows_each": self.rows_each,
        }


def clipped(unit: Unit, rows_each: int, several: bool = False) -> tuple[Premise, ...]:
    """Whose gradient is clipped, and how it is known who owns a record."""
    if unit is Unit.RECORD:
        return (premises.CLIPPED_GRADIENTS, premises.ONE_RECORD_EACH)
    people = premises.SEVERAL_OWNERS if several else premises.one_group_each("groups")
    return (premises.clipped_users(rows_each), people)
