"""Noisy means of teachers' probabilities, and a student that learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from privet.data.records import PublicFacts, Records
from privet.methods.contract import Files, Method, Model, Spending
from privet.methods.pate.answered import AnsweredPlan, noisy_labels
from privet.methods.pate.dealing import Dealt
from privet.methods.pate.method import least_noise
from privet.methods.pate.reducers import IdentityReducer
from privet.methods.pate.students import student_with_shares
from privet.methods.pate.volumes import VolumeFiles


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MeanPATE(Dealt, Method[AnsweredPlan]):
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
    (True, '(4, 1e-05)-DP per teacher shard, replace-one, proved; EXPERIMENT, NOT A RELEASE')

    Fay, Sjoelund and Oechtering (2020), algorithm 2.
    """

    name: ClassVar[str] = "pate"
    files: ClassVar[type[Files] | None] = VolumeFiles
    system: ClassVar[str] = "PATE"

    def plan(self, facts: PublicFacts) -> AnsweredPlan:
        """The least noise for the answers; codes are probabilities, less their middle."""
        reducer = IdentityReducer(shape=(facts.outputs,))
        teachers, queries = self.counted(facts)
        return AnsweredPlan(
            facts=facts,
            teachers=teachers,
            queries=queries,
            aggregator=least_noise(facts, (teachers, queries), reducer),
            reducer=reducer,
        )

    def fit(self, records: Records, plan: AnsweredPlan, spending: Spending) -> Model:
        """Teachers, then the charge, then noise, then the student."""
        labels = noisy_labels(self, records, plan, spending)
        return self.taught(plan, labels, teach=student_with_shares)
