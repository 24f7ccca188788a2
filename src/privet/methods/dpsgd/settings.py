"""The settings of DP-SGD, and the steps that they fix where they fix the noise.

With a budget the noise follows from it. HomogeneousDPDL by its numbers and HeterogeneousDPDL by a
table (tight-privacy-cost, Fig. 1) fix the noise beforehand: epsilon is then the answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from privet import _check, chosen
from privet.data.records import PublicFacts
from privet.errors import InvalidArgument
from privet.guarantee import Unit
from privet.loss.schedule_file import load_text, read_phases
from privet.methods.contract import Worst, lone_record, setting, worst_unit
from privet.methods.dpsgd.plan import DPSGDPlan
from privet.methods.dpsgd.schedule import Array, Schedule


@dataclass(frozen=True, kw_only=True)
class DPSGDSettings:
    """What linear heads and networks share; None leaves a setting to the rule."""

    steps: int | None = setting(None, help="How many steps; by rule unless told.")
    sample_rate: float | None = setting(None, help="Rate of the Poisson sample; by rule.")
    clipping_bound: float | None = setting(None, help="L2 bound of one gradient; by rule.")
    learning_rate: float | None = setting(
        None, help="Of the mean gradient over the bound, at the start; by rule."
    )
    momentum: float = setting(chosen.MOMENTUM, help="Of the descent, after Nesterov.")
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

    def fixed_epsilon(self, records: int, delta: float) -> float | None:
        """What the steps cost exactly, where settings fix their noise."""
        schedule = self._fixed(records, bound=1.0)  # the price does not depend on it
        if schedule is None:
            return None
        return schedule.loss().epsilon(delta) * (1.0 + 1e-9)  # a ledger rounds up what it states

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", _written(self.schedule))
        if self.steps is not None:
            _check.count("steps", self.steps)
        _check.count("rows_each", self.rows_each)
        for name in ("sample_rate", "clipping_bound", "learning_rate", "noise_multiplier", "sigma"):
            if (value := getattr(self, name)) is not None:
                _check.positive(name, value)

    @classmethod
    def small(cls) -> Self:
        """Four steps on samples of most records, so short that none runs away from a record.

        A gradient that stays as long as the clipping bound is the most that a record can do, and
        the learning rate is nothing that the promise depends on.
        """
        return cls(steps=4, sample_rate=0.8, learning_rate=1e-3)

    def neighbours(self, plan: DPSGDPlan) -> Worst:
        """A record against a null one; or a user to whom all records belong."""
        return (worst_unit if plan.facts.unit is Unit.USER else lone_record)(plan.facts)

    def rows_of(self, facts: PublicFacts) -> int:
        """Rows of a unit in a step."""
        return self.rows_each if facts.unit is Unit.USER else 1

    def fixed_schedule(self, facts: PublicFacts, *, bound: float) -> Schedule | None:
        """The steps that settings fix, refused where they cost more than the budget."""
        _check.open_unit("delta", facts.delta)
        schedule = self._fixed(facts.units, bound=bound)
        if schedule is not None:
            cost = schedule.loss().epsilon(facts.delta)
            if cost > facts.epsilon:
                raise InvalidArgument(
                    "noise_multiplier", float(schedule.noise_multipliers[0]),
                    f"noise within epsilon {facts.epsilon:g}", f"these steps cost {cost:.6g}",
                )  # fmt: skip
        return schedule

    def table_rates(self, fixed: Schedule | None) -> Array | None:
        """eta_t of the table over C_t, as plans take them; None where it has none."""
        if fixed is None or self.schedule is None:
            return None
        phases = read_phases(self.schedule)
        if "learning_rate" not in phases.columns:
            return None
        return np.array(phases.each_step(phases.columns["learning_rate"])) * fixed.bounds

    def _fixed(self, records: int, *, bound: float) -> Schedule | None:
        """The steps that settings fix, C = `bound` unless told; None where they fix no noise."""
        names = ("noise_multiplier", "sigma", "schedule")
        told = [name for name in names if getattr(self, name) is not None]
        if not told:
            return None
        if len(told) > 1:
            raise InvalidArgument(told[0], f"with {told[1]}", "the noise said in one way")
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
            raise InvalidArgument(missing, None, f"a number, given with {told[0]}")
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


def _written(schedule: str | os.PathLike[str] | None) -> str | None:
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
