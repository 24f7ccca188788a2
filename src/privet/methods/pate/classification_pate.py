"""PATE by votes: noisy winners label the public inputs, and a student learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.guarantee import Premise
from privet.loss import PrivacyLoss
from privet.methods.contract import Method, Model, Spending, setting
from privet.methods.pate.aggregate import OF_SHARDS
from privet.methods.pate.dealing import Dealt, DealtPlan
from privet.methods.pate.voting import ConfidentGNMax, GNMax


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class VotePlan(DealtPlan):
    """So many votes of so many teachers."""

    facts: PublicFacts
    teachers: int
    queries: int
    election: GNMax | ConfidentGNMax

    @property
    def loss(self) -> PrivacyLoss:
        return self.election.loss(self.queries)

    @property
    def theorem(self) -> str:
        return self.election.theorem

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (premises.ONE_VOTE, self.election.mechanism.law, *OF_SHARDS)

    def summary(self) -> dict[str, Any]:
        e = self.election
        return {
            "teachers": self.teachers,
            "queries": self.queries,
            "answers": e.answers if isinstance(e, ConfidentGNMax) else self.queries,
            "noise_on_the_votes": e.mechanism.scale,
        }


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class VotingPATE(Dealt, Method[VotePlan]):
    """A student taught by the noisy winners of votes of many teachers (GNMax).

    With `answers` only so many queries are answered, and only those on which teachers agree: at
    least `threshold` of them, after noise, for one class (confident GNMax).

    **Guarantee**: replace-one, per teacher shard, whatever the votes.

    Papernot et al., "Scalable Private Learning with PATE" (2018).
    """

    name: ClassVar[str] = "pate-by-votes"
    system: ClassVar[str] = "PATE"

    answers: int | None = setting(
        None, help="Answer at most so many, where teachers agree; all unless told."
    )
    threshold: float = setting(0.6, help="Share of the teachers that must agree, with `answers`.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers is not None:
            _check.count("answers", self.answers)
        _check.open_unit("threshold", self.threshold)

    def plan(self, facts: PublicFacts) -> VotePlan:
        """The least noise for the votes; where only some are answered, all inputs are looked at."""
        teachers, queries = self.counted(facts)
        election: GNMax | ConfidentGNMax
        if self.answers is None:
            election = GNMax.for_budget(
                classes=facts.outputs, queries=queries, epsilon=facts.epsilon, delta=facts.delta
            )
        else:
            queries = self.queries or len(self.public_inputs)
            election = ConfidentGNMax.for_budget(
                classes=facts.outputs,
                queries=queries,
                answers=min(self.answers, queries),
                threshold=self.threshold * teachers,
                epsilon=facts.epsilon,
                delta=facts.delta,
            )
        return VotePlan(facts=facts, teachers=teachers, queries=queries, election=election)

    def fit(self, records: Records, plan: VotePlan, spending: Spending) -> Model:
        """Teachers, then the charge, then noise, then the student."""
        votes = self.votes(records, plan, spending)
        spending.charge(what="votes of teachers")
        found = plan.election.release(votes, rng=spending.rng, delta=plan.facts.delta)
        return self.taught(plan, found.labels[found.answered], which=found.answered)

    def votes(self, records: Records, plan: VotePlan, spending: Spending) -> NDArray[np.int64]:
        """(teachers, queries) class numbers."""
        read = partial(_vote, shape=(plan.queries, plan.facts.outputs))
        return np.array(self.asked(records, plan, spending, read))


def _vote(site: str, predictions: Any, *, shape: tuple[int, int]) -> NDArray[np.int64]:
    """The class that a teacher finds most probable; not a number counts as improbable."""
    p = np.asarray(predictions, dtype=np.float64)
    if p.shape != shape:
        raise InvalidArgument("answers", p.shape, f"probabilities of shape {shape}")
    return np.asarray(np.nan_to_num(p, nan=-np.inf).argmax(axis=1))
