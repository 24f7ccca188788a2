"""What methods share whose teachers' codes are averaged and released as one Gaussian."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from privet.data.records import PublicFacts, Records
from privet.guarantee import Premise
from privet.loss import PrivacyLoss
from privet.methods.contract import Spending
from privet.methods.pate.aggregate import OF_SHARDS, Aggregator
from privet.methods.pate.dealing import Array, Dealt, DealtPlan
from privet.methods.pate.method import clipped_answers
from privet.methods.pate.reducers import Reducer


@dataclass(frozen=True, kw_only=True, eq=False)
class AnsweredPlan(DealtPlan):
    """So many answers of so many teachers, each the code of a reducer, as one Gaussian release."""

    facts: PublicFacts
    teachers: int
    queries: int
    aggregator: Aggregator
    reducer: Reducer = field(repr=False)

    @property
    def loss(self) -> PrivacyLoss:
        return self.aggregator.loss(self.queries, dimension=self.reducer.dimension)

    @property
    def theorem(self) -> str:
        return f"{self.aggregator.mechanism.theorem}, {self.queries} answers as one"

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (self.aggregator.clipped, self.aggregator.mechanism.law, *OF_SHARDS)

    def summary(self) -> dict[str, Any]:
        return {
            "teachers": self.teachers,
            "queries": self.queries,
            "noise_on_the_mean": self.aggregator.noise,
        }


def noisy_labels(method: Dealt, records: Records, plan: AnsweredPlan, spending: Spending) -> Array:
    """What the teachers say on average, with noise: charged before it is released."""
    reducer = plan.reducer
    read = partial(clipped_answers, reducer=reducer, queries="", expected=plan.queries)
    answers = method.asked(records, plan, spending, read)
    spending.charge(what="answers of teachers")
    noisy = plan.aggregator.release(
        answers, rng=spending.rng, delta=plan.facts.delta, reducer=reducer.name
    )
    return reducer.decode(noisy.codes, noise=noisy.noise)
