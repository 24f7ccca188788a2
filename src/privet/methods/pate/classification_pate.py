"""PATE for classes: students of noisy mean probabilities, or of noisy winners of votes (GNMax)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from privet import _check
from privet.data.records import PublicFacts
from privet.methods.contract import Files, Model, setting
from privet.methods.pate.gnmax_voting import ConfidentGNMax, GNMax
from privet.methods.pate.mean_aggregation import NoisyLabels
from privet.methods.pate.pipeline import CodeAggregation
from privet.methods.pate.reducers import IdentityReducer
from privet.methods.pate.single_machine_pate import PATEPlan, ShardedPATE
from privet.methods.pate.students import train_student_matching_shares
from privet.methods.pate.volume_pate import VolumeFiles

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MeanPATE(ShardedPATE):
    """A student taught by noisy means of the class probabilities of many teachers.

    `public_inputs`: records like the private ones, without labels; the student learns from these
    alone. Records are dealt to the teachers by their place, or by `groups` (such as hospitals).

    **Guarantee**: replace-one, per teacher shard. All records of one teacher may change, so one
    *replaced* record is covered too, and one user where `groups` name users.

    **Assumes** that the public inputs are public.

    >>> import numpy as np
    >>> from privet.estimators import PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> method = MeanPATE(public_inputs=rng.uniform(size=(40, 2)))
    >>> clf = PrivateClassifier(method, epsilon=4.0, classes=[0, 1], bounds=(0, 1),
    ...                         random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9, str(clf.guarantee_)
    (True, '(4, 1e-05)-DP per teacher shard, replace-one, proved, if 6 assumed premises hold...')

    Fay, Sjoelund and Oechtering (2020), algorithm 2.
    """

    name: ClassVar[str] = "pate"
    files: ClassVar[type[Files] | None] = VolumeFiles

    def plan(self, facts: PublicFacts) -> PATEPlan:
        """The least noise for the answers; codes are probabilities, less their middle."""
        teachers, queries = self.sizes(facts)
        aggregation = CodeAggregation.for_budget(
            reducer=IdentityReducer(shape=(facts.outputs,)), teachers=teachers, queries=queries,
            epsilon=facts.epsilon, delta=facts.delta,
        )  # fmt: skip
        return PATEPlan(
            facts=facts,
            teachers=teachers,
            queries=queries,
            aggregation=aggregation,
            signal_numbers=facts.outputs,
            details={"noise_on_the_mean": aggregation.aggregator.noise},
        )

    def train_student(self, plan: PATEPlan, inputs: Array, noisy: NoisyLabels) -> Model:
        """A student whose classes are as frequent as the labels say: post-processing."""
        return train_student_matching_shares(self.student_learner(plan), inputs, noisy.labels)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class VotingPATE(ShardedPATE):
    """A student taught by the noisy winners of votes of many teachers (GNMax).

    With `answers` only so many queries are answered, and only those on which teachers agree: at
    least `threshold` of them, after noise, for one class (confident GNMax).

    **Guarantee**: replace-one, per teacher shard, whatever the votes.

    Papernot et al., "Scalable Private Learning with PATE" (2018).
    """

    name: ClassVar[str] = "pate-by-votes"

    answers: int | None = setting(
        None, help="Answer at most so many, where teachers agree; by default all."
    )
    threshold: float = setting(0.6, help="Share of the teachers that must agree, with `answers`.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers is not None:
            _check.count("answers", self.answers)
        _check.open_unit("threshold", self.threshold)

    def plan(self, facts: PublicFacts) -> PATEPlan:
        """The least noise for the votes; where only some are answered, all inputs are looked at."""
        teachers, queries = self.sizes(facts)
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
        limit = election.answers if isinstance(election, ConfidentGNMax) else queries
        return PATEPlan(
            facts=facts,
            teachers=teachers,
            queries=queries,
            aggregation=election,
            signal_numbers=facts.outputs,
            details={"answers": limit, "noise_on_the_votes": election.mechanism.scale},
        )
