"""A sixth method, as somebody outside would write it: the nearest of noisy class means."""

from dataclasses import dataclass

import numpy as np

import privet
from privet.methods import InputFeatures, LinearModel, Method, Plan, PublicFacts, setting


@dataclass(frozen=True, kw_only=True)
class MeansPlan(Plan):
    facts: PublicFacts
    mechanism: privet.mechanisms.GaussianMechanism

    @property
    def loss(self):
        return self.mechanism.loss(1.0, dimension=self.facts.outputs * self.facts.features)

    @property
    def theorem(self):
        return self.mechanism.theorem

    @property
    def premises(self):
        return privet.premises.bound("each row has length at most 1"), self.mechanism.law


@dataclass(frozen=True, kw_only=True)
class NearestMean(Method[MeansPlan]):
    """The class whose noisy mean is nearest."""

    name = "nearest-mean"
    input_features = InputFeatures.FEW
    shrink: float = setting(1.0, help="What class means are multiplied by.")

    def plan(self, facts):
        noise = privet.mechanisms.GaussianMechanism.for_budget(
            1.0, epsilon=facts.epsilon, delta=facts.delta, dimension=facts.outputs * facts.features
        )
        return MeansPlan(facts=facts, mechanism=noise)

    def fit(self, records, plan, context):
        context.charge(what="class means")
        one_hot = np.eye(plan.facts.outputs + 1)[records.targets][:, :-1]  # -1: no class at all
        rows = (one_hot[:, :, None] * records.rows.ball()[:, None, :]).reshape(len(records), -1)
        total = privet.sensitivity.clip_l2(rows, 1.0).sum()
        noisy = plan.mechanism.release(total, rng=context.noise("means"))
        means = self.shrink * noisy.reshape(plan.facts.outputs, -1)
        return LinearModel(weights=means.T, intercept=np.zeros(plan.facts.outputs))
