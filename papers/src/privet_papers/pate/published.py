"""PATE with the paper's own noise, as a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.methods.pate import (
    Aggregator,
    IdentityReducer,
    as_learner,
    encode_predictions,
    hash_inputs,
    published_claim,
)
from privet.noise import Source
from privet_papers.argument_checks import check_counts
from privet_papers.published_classifier import Array, PublishedClassifier, PublishedRelease


@final
@dataclass(kw_only=True, eq=False)
class PublishedPATE(PublishedClassifier):
    """Algorithm 2: the mean of teachers' answers with noise by Renyi composition, then a student.

    Record i goes to teacher i mod `n_teachers`; `public_inputs` are asked about. `teacher` and
    `student` are scikit-learn classifiers, logistic regression by default. `ledger`: replace-one,
    per teacher shard (`privet.methods.pate.shard_ledger`).

    **Guarantee** that of `Aggregator`, exact: less than the paper's epsilon, which is `claim_`,
    because its noise is more than the budget needs.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 2)); y = (X[:, 0] > X[:, 1]).astype(int)
    >>> made = PublishedPATE(public_inputs=rng.uniform(size=(40, 2)), epsilon=4.0, random_state=0)
    >>> made = made.fit(X, y)
    >>> made.claim_.epsilon, round(made.guarantee_.epsilon, 2), made.score(X, y) > 0.8
    (4.0, 3.25, True)

    Fay, Sjoelund and Oechtering (2020), algorithm 2.
    """

    public_inputs: Any
    epsilon: float = 1.0
    delta: float = 1e-5
    n_teachers: int = 50
    teacher: Any = None
    student: Any = None

    def _release(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> PublishedRelease[Any]:
        from sklearn.linear_model import LogisticRegression

        check_counts(n_teachers=self.n_teachers)
        if len(rows) < self.n_teachers:
            raise InvalidArgument("X", len(rows), f"at least {self.n_teachers} records")
        public, logistic = self._rows(np.asarray(self.public_inputs)), LogisticRegression(C=10.0)
        count = len(self.classes_)
        teacher = as_learner(self.teacher or logistic, classes=count)
        reducer, inputs_hash = IdentityReducer(shape=(count,)), hash_inputs(public)
        aggregator = Aggregator.published(
            teachers=self.n_teachers, queries=len(public), epsilon=self.epsilon, delta=self.delta,
            radius=reducer.radius,
        )  # fmt: skip
        answers = []
        for k in range(self.n_teachers):
            own = slice(k, None, self.n_teachers)
            said = teacher.train(rows[own], labels[own], seed=k)(public)
            answers.append(
                encode_predictions(
                    f"teacher {k}",
                    said,
                    reducer=reducer,
                    inputs_hash=inputs_hash,
                    expected=len(public),
                )
            )
        noisy = aggregator.release(
            answers, rng=rng, delta=self.delta, ledger=self.ledger, reducer=reducer.name
        )
        answers_mean = reducer.decode(noisy.codes, noise=noisy.noise)
        student = as_learner(self.student or logistic, classes=count).train(
            public, answers_mean, seed=0
        )
        return PublishedRelease(
            model=student,
            claim=published_claim(epsilon=self.epsilon, delta=self.delta),
            guarantee=noisy.guarantee,
            entry=noisy.entry,
        )

    def _logits(self, rows: Array) -> NDArray[np.float64]:
        probabilities: NDArray[np.float64] = np.log(np.maximum(self.model_(rows), 1e-300))
        return probabilities
