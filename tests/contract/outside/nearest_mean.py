"""A sixth method, as somebody outside would write it: the nearest of noisy class means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privet import loss, mechanisms, premises
from privet.bounds import clip_l2
from privet.data.records import PublicFacts, Records
from privet.guarantee import Premise
from privet.methods.contract import Front, Method, Plan, Spending, setting
from privet.methods.models import LinearModel


@dataclass(frozen=True, kw_only=True)
class MeansPlan(Plan):
    facts: PublicFacts
    mechanism: mechanisms.Gaussian
    shrink: float

    @property
    def loss(self) -> loss.PrivacyLoss:
        return self.mechanism.loss(1.0, dimension=self.facts.outputs * self.facts.features)

    @property
    def theorem(self) -> str:
        return self.mechanism.theorem

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (premises.bound("each row has length at most 1"), self.mechanism.law)


@dataclass(frozen=True, kw_only=True)
class NearestMean(Method[MeansPlan]):
    """The class whose noisy mean is nearest."""

    name: ClassVar[str] = "nearest-mean"
    front: ClassVar[Front] = Front.FEW
    shrink: float = setting(1.0, help="What class means are multiplied by.")

    def plan(self, facts: PublicFacts) -> MeansPlan:
        noise = mechanisms.Gaussian.for_budget(
            1.0, epsilon=facts.epsilon, delta=facts.delta, dimension=facts.outputs * facts.features
        )
        return MeansPlan(facts=facts, mechanism=noise, shrink=self.shrink)

    def fit(self, records: Records, plan: MeansPlan, spending: Spending) -> Any:
        spending.charge(what="class means")
        one_hot = np.eye(plan.facts.outputs + 1)[records.targets][:, :-1]  # -1: no class at all
        rows = (one_hot[:, :, None] * records.rows.ball()[:, None, :]).reshape(len(records), -1)
        noisy = plan.mechanism.release(clip_l2(rows, 1.0).sum(), rng=spending.rng.child("means"))
        means = plan.shrink * noisy.reshape(plan.facts.outputs, -1)
        return LinearModel(weights=means.T, intercept=np.zeros(plan.facts.outputs))
