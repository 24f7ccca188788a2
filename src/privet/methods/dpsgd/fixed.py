"""Steps whose noise is fixed beforehand: epsilon is the answer, not the question.

HomogeneousDPDL by its numbers and HeterogeneousDPDL by a table (tight-privacy-cost, Fig. 1).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import numpy as np

from privet.data.records import PublicFacts
from privet.errors import InvalidArgument
from privet.loss.schedule_file import load_text, read_phases
from privet.methods.dpsgd.schedule import Array, Schedule


class Fixable(Protocol):
    """Settings that may fix the noise."""

    @property
    def steps(self) -> int | None: ...
    @property
    def sample_rate(self) -> float | None: ...
    @property
    def clipping_bound(self) -> float | None: ...
    @property
    def learning_rate(self) -> float | None: ...
    @property
    def noise_multiplier(self) -> float | None: ...
    @property
    def sigma(self) -> float | None: ...
    @property
    def schedule(self) -> str | None: ...


def written(schedule: str | os.PathLike[str] | None) -> str | None:
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


def fixed_schedule(given: Fixable, records: int, *, bound: float) -> Schedule | None:
    """The steps that settings fix, C = `bound` unless told; None where they fix no noise."""
    names = ("noise_multiplier", "sigma", "schedule")
    told = [name for name in names if getattr(given, name) is not None]
    if not told:
        return None
    if len(told) > 1:
        raise InvalidArgument(told[0], f"with {told[1]}", "the noise said in one way")
    if given.schedule is not None:
        for name in ("steps", "sample_rate", "clipping_bound", "learning_rate"):
            if getattr(given, name) is not None:
                raise InvalidArgument(name, getattr(given, name), "left to the schedule's columns")
        phases = read_phases(given.schedule)
        bounds = phases.columns.get("clipping_bound", (bound,) * len(phases.rates))
        return Schedule(
            steps=sum(phases.steps),
            sample_rate=phases.each_step(phases.rates),
            noise_multiplier=phases.each_step(phases.noise_multipliers(records)),
            clipping_bound=phases.each_step(bounds),
        )
    if given.steps is None or given.sample_rate is None:
        missing = "steps" if given.steps is None else "sample_rate"
        raise InvalidArgument(missing, None, f"a number, given with {told[0]}")
    c = bound if given.clipping_bound is None else given.clipping_bound
    if given.noise_multiplier is not None:
        return Schedule(
            steps=given.steps, sample_rate=given.sample_rate,
            noise_multiplier=given.noise_multiplier, clipping_bound=c,
        )  # fmt: skip
    if given.clipping_bound is None or given.sigma is None:
        raise InvalidArgument("clipping_bound", None, "a number, given with sigma")
    return Schedule.absolute(
        steps=given.steps, sample_rate=given.sample_rate, sigma=given.sigma, clipping_bound=c,
        records=records,
    )  # fmt: skip


def within_budget(schedule: Schedule | None, facts: PublicFacts) -> Schedule | None:
    """The same, refused where it costs more than the budget."""
    if schedule is not None:
        cost = schedule.loss().epsilon(facts.delta)
        if cost > facts.epsilon:
            raise InvalidArgument(
                "noise_multiplier", float(schedule.noise_multipliers[0]),
                f"noise within epsilon {facts.epsilon:g}", f"these steps cost {cost:.6g}",
            )  # fmt: skip
    return schedule


def table_rates(given: Fixable, schedule: Schedule | None) -> Array | None:
    """eta_t of the table over C_t, as plans take them; None where it has none."""
    if schedule is None or given.schedule is None:
        return None
    phases = read_phases(given.schedule)
    if "learning_rate" not in phases.columns:
        return None
    return np.array(phases.each_step(phases.columns["learning_rate"])) * schedule.bounds
