"""A constant where noise would leave a regression less: the released mean of the target.

Descent with too few records returns noise, worse than any constant: `python -m
benchmarks.small_data` found R2 from -5.7 to .03 wherever all units together were less than 3 times
as long as the noise. Then the whole budget goes to the mean instead, which one number of noise
hurts least. Public sizes alone decide, before anything is charged, and it is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from privet import premises
from privet.accounting import PrivacyLoss
from privet.accounting.calibration import BUDGET_MARGIN
from privet.data.records import PublicFacts, Records
from privet.guarantee import Premise, Unit
from privet.mechanisms import GaussianMechanism
from privet.methods.contract import Plan
from privet.methods.release_context import ReleaseContext
from privet.methods.released_models import LinearModel
from privet.sensitivity import BoundedValue, clip_l2

WORSE = 3.0
"""Times that all units are as long as the noise, below which the mean is better (see above)."""
_SPREAD = 3.0**-0.5
"""Of what is known of a mean beforehand: anywhere in [-1, 1]."""


@final
@dataclass(frozen=True, kw_only=True)
class ConstantPlan(Plan):
    """The mean of the target, of a unit at most 1, released once for the whole budget."""

    facts: PublicFacts
    in_words: ClassVar[str] = "the mean of the target, the same for every record"

    @classmethod
    def in_place_of(cls, plan: Plan) -> Plan:
        """This, where the plan is to predict a number from too little; else the plan itself."""
        facts, signal = plan.facts, plan.signal
        known = facts.unit is Unit.RECORD or facts.users is not None
        linear = signal.what in ("records", "users") and signal.growth == 1.0
        possible = facts.outputs == 1 and facts.delta > 0.0 and known and linear
        if not possible or signal.times(facts.mu) >= WORSE:
            return plan
        return cls(facts=facts)

    @property
    def mechanism(self) -> GaussianMechanism:
        """The least noise for the budget."""
        return GaussianMechanism.for_mu(self._total(np.zeros(1)), mu=self.facts.mu * BUDGET_MARGIN)

    def _total(self, each: Any) -> BoundedValue:
        """The sum of what units say, each a number in [-1, 1]."""
        total = clip_l2(np.asarray(each, dtype=np.float64)[:, None], 1.0).sum()
        return replace(total, unit=self.facts.unit)

    @property
    def loss(self) -> PrivacyLoss:
        return self.mechanism.loss(self._total(np.zeros(1)))

    @property
    def theorem(self) -> str:
        return self.mechanism.theorem

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (premises.CHARGED_FIRST, premises.EXACT_LAW, premises.PUBLIC_DIVISOR)

    def expectation(self) -> str:
        """What is released instead, and how many units would do."""
        return f"{super().expectation()}: a constant is released instead, {self.in_words}"

    def summary(self) -> dict[str, Any]:
        return {"constant": self.in_words}

    def fit(self, records: Records, context: ReleaseContext) -> LinearModel:
        """Charge, release, and shrink to the middle of the declared range as far as noise asks."""
        context.charge(what="the mean of the target")
        each = np.where(records.null, 0.0, records.targets)
        if records.groups is not None:  # a person's own mean
            there = np.bincount(records.groups, weights=~records.null)
            each = np.bincount(records.groups, weights=each) / np.maximum(there, 1.0)
        noisy = self.mechanism.release(self._total(each), rng=context.noise("mean"))
        units, noise = self.facts.units, self.mechanism.scale / self.facts.units
        mean = float(noisy[0]) / units * _SPREAD**2 / (_SPREAD**2 + noise**2)
        return LinearModel(
            weights=np.zeros((self.facts.features, 1)), intercept=np.array([np.clip(mean, -1, 1)])
        )
