"""The settings of DP-SGD, and what a run will do and cost by them, from public facts alone.

With a budget the noise follows from it. HomogeneousDPDL by its numbers and HeterogeneousDPDL by a
table (tight-privacy-cost, Fig. 1) fix the noise beforehand: epsilon is then the answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor

from privet import _check, premises, tuned_defaults
from privet.accounting import Gaussian, PrivacyLoss
from privet.accounting.closed_form import closed_form_claim
from privet.accounting.schedule_file import load_text, read_phases
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Premise, Unit
from privet.methods.contract import Plan, setting
from privet.methods.dpsgd.schedule import Array, Schedule
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair, worst_unit_pair
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
    shift_mu: float = 0.0
    """What measuring the shift of equal recalls costs, likewise; 0 for none."""
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
        return self.schedule.loss(extra_losses=self.extra_losses)

    @property
    def theorem(self) -> str:
        return "exact composition of Gaussian releases on random samples"

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (
            premises.POISSON_COINS,
            premises.PUBLIC_DIVISOR,
            *(CLOSED if self.closed else ENGINE),
            *clipping_premises(self.facts.unit, self.rows_each),
            *PREMISES,
        )

    @property
    def claim(self) -> Guarantee | None:
        """What the closed form of tight-privacy-cost states."""
        return replace(closed_form_claim(self.loss, self.facts.delta), unit=self.facts.unit)

    @property
    def steps(self) -> int:
        return self.schedule.steps

    @property
    def extra_losses(self) -> tuple[Gaussian, ...]:
        """The cost of the private mean and, with classes, of the measures of confidence and, with
        a declared prior, of recalls.
        """
        if self.centre_mu == 0.0:
            return ()
        measured = self.closed and self.facts.outputs > 1
        shares = (_MEAN, _CONFIDENCE) if measured else (1.0,)
        costs = (*(share * self.centre_mu for share in shares), self.shift_mu)
        return tuple(Gaussian(mu=mu) for mu in costs if mu)

    @property
    def serves_classes_alike(self) -> bool:
        return self.shift_mu > 0.0

    def centre_scale(self, dimension: int) -> float:
        """The noise on the sum of rows of the unit ball."""
        return self._scale(0, dimension)

    def confidence_scale(self, dimension: int) -> float:
        """The noise on the sum of what measures confidence, vectors of the unit ball too."""
        return self._scale(1, dimension)

    def recall_scale(self, dimension: int) -> float:
        """The noise on the sum of answers of all shifts, vectors of the unit ball too."""
        return self._scale(2, dimension)

    def _scale(self, which: int, dimension: int) -> float:
        z = 1.0 / self.extra_losses[which].mu
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
            **({"shift_mu": self.shift_mu} if self.shift_mu else {}),
        }


def clipping_premises(unit: Unit, rows_each: int, several: bool = False) -> tuple[Premise, ...]:
    """Whose gradient is clipped, and how it is known who owns a record."""
    if unit is Unit.RECORD:
        return (premises.CLIPPED_GRADIENTS, premises.ONE_RECORD_EACH)
    people = premises.SEVERAL_OWNERS if several else premises.one_group_each("groups")
    return (premises.clipped_users(rows_each), people)


@dataclass(frozen=True, kw_only=True)
class DPSGDSettings:
    """What linear heads and networks share; None leaves a setting to the rule."""

    steps: int | None = setting(None, help="How many steps; by default by a rule.")
    sample_rate: float | None = setting(None, help="Rate of the Poisson sample; by rule.")
    clipping_bound: float | None = setting(None, help="L2 bound of one gradient; by rule.")
    learning_rate: float | None = setting(
        None, help="Of the mean gradient over the bound, at the start; by rule."
    )
    momentum: float = setting(tuned_defaults.MOMENTUM, help="Of the descent, after Nesterov.")
    rows_each: int = setting(8, help="Rows of a user in a step, at most; for users only.")
    noise_multiplier: float | None = setting(None, help="z of every step, in place of a budget.")
    sigma: float | None = setting(
        None, help="The noise on the mean gradient, in place of a budget: z = sigma q N / C."
    )
    schedule: str | None = setting(
        None,
        help="CSV of sample_rate, noise_multiplier or sigma, clipping_bound, learning_rate, steps, "
        "in place of a budget; with learning rates there is no momentum.",
    )

    @property
    def fixes_noise(self) -> bool:
        """Whether the settings fix the noise, so that no epsilon is needed."""
        return bool(self._noise_settings())

    def _noise_settings(self) -> list[str]:
        names = ("noise_multiplier", "sigma", "schedule")
        return [name for name in names if getattr(self, name) is not None]

    def fixed_epsilon(self, records: int, delta: float) -> float | None:
        """What the steps cost exactly, where settings fix their noise."""
        # the price does not depend on the bound
        schedule = self._schedule_from_settings(records, bound=1.0)
        if schedule is None:
            return None
        return schedule.loss().epsilon(delta) * (1.0 + 1e-9)  # a ledger rounds up what it states

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", _schedule_text(self.schedule))
        if self.steps is not None:
            _check.count("steps", self.steps)
        _check.count("rows_each", self.rows_each)
        for name in ("sample_rate", "clipping_bound", "learning_rate", "noise_multiplier", "sigma"):
            if (value := getattr(self, name)) is not None:
                _check.positive(name, value)

    @classmethod
    def for_audit(cls) -> Self:
        """Four steps on samples of most records, so short that none runs away from a record.

        A gradient that stays as long as the clipping bound is the most that a record can do, and
        the learning rate is nothing that the promise depends on.
        """
        return cls(steps=4, sample_rate=0.8, learning_rate=1e-3)

    def neighbours(self, plan: DPSGDPlan) -> NeighbouringPair:
        """A record against a null one; or a user to whom all records belong."""
        return (worst_unit_pair if plan.facts.unit is Unit.USER else lone_record_pair)(plan.facts)

    def signal(self, facts: PublicFacts) -> float:
        """How strong the signal of all units is against the noise: mu n."""
        return facts.mu * facts.units

    def rows_of(self, facts: PublicFacts) -> int:
        """How many rows of a protected unit may be in a step."""
        return self.rows_each if facts.unit is Unit.USER else 1

    def fixed_schedule(self, facts: PublicFacts, *, bound: float) -> Schedule | None:
        """The steps that settings fix, refused where they cost more than the budget."""
        if facts.delta == 0.0:
            raise InvalidArgument("delta", facts.delta, "a number in (0, 1)")
        schedule = self._schedule_from_settings(facts.units, bound=bound)
        if schedule is not None:
            cost = schedule.loss().epsilon(facts.delta)
            if cost > facts.epsilon:
                raise InvalidArgument(
                    "noise_multiplier", float(schedule.noise_multipliers[0]),
                    f"noise within epsilon {facts.epsilon:g}", f"these steps cost {cost:.6g}",
                )  # fmt: skip
        return schedule

    def schedule_for(
        self,
        facts: PublicFacts,
        *,
        steps: int,
        sample_rate: float,
        bound: float,
        extra_loss: PrivacyLoss | None = None,
    ) -> Schedule:
        """The steps that the budget pays for, with `extra_loss`; settings come first."""
        return Schedule.for_budget(
            epsilon=facts.epsilon,
            delta=facts.delta,
            steps=steps,
            sample_rate=self.sample_rate or sample_rate,
            clipping_bound=self.clipping_bound or bound,
            extra_loss=extra_loss,
        )

    def table_rates(self, fixed: Schedule | None) -> Array | None:
        """eta_t of the table over C_t, as plans take them; None where it has none."""
        if fixed is None or self.schedule is None:
            return None
        phases = read_phases(self.schedule)
        if "learning_rate" not in phases.columns:
            return None
        return np.array(phases.each_step(phases.columns["learning_rate"])) * fixed.bounds

    def _schedule_from_settings(self, records: int, *, bound: float) -> Schedule | None:
        """The steps that settings fix, C = `bound` by default; None where they fix no noise."""
        fixed_by = self._noise_settings()
        if not fixed_by:
            return None
        if len(fixed_by) > 1:
            raise InvalidArgument(fixed_by[0], f"with {fixed_by[1]}", "the noise said in one way")
        if self.schedule is not None:
            for name in ("steps", "sample_rate", "clipping_bound", "learning_rate"):
                if (value := getattr(self, name)) is not None:
                    raise InvalidArgument(name, value, "left to the schedule's columns")
            phases = read_phases(self.schedule)
            bounds = phases.columns.get("clipping_bound", (bound,) * len(phases.rates))
            return Schedule(
                steps=sum(phases.steps),
                sample_rate=phases.each_step(phases.rates),
                noise_multiplier=phases.each_step(phases.noise_multipliers(records)),
                clipping_bound=phases.each_step(bounds),
            )
        if self.steps is None or self.sample_rate is None:
            missing = "steps" if self.steps is None else "sample_rate"
            raise InvalidArgument(missing, None, f"a number, given with {fixed_by[0]}")
        c = bound if self.clipping_bound is None else self.clipping_bound
        if self.noise_multiplier is not None:
            return Schedule(
                steps=self.steps, sample_rate=self.sample_rate,
                noise_multiplier=self.noise_multiplier, clipping_bound=c,
            )  # fmt: skip
        if self.clipping_bound is None or self.sigma is None:
            raise InvalidArgument("clipping_bound", None, "a number, given with sigma")
        return Schedule.absolute(
            steps=self.steps, sample_rate=self.sample_rate, sigma=self.sigma, clipping_bound=c,
            records=records,
        )  # fmt: skip


def _schedule_text(schedule: str | os.PathLike[str] | None) -> str | None:
    """What is written in a schedule's file, so that a run does not depend on the file; checked."""
    if schedule is None:
        return None
    text = str(schedule)
    if "\n" in text:
        read_phases(text)
        return text
    text = load_text(Path(text))
    read_phases(text, str(schedule))
    return text if "\n" in text else f"{text}\n"
