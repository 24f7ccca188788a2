"""Relevance as a front end: features scaled by private relevance, for DP-SGD of any network behind.

A first layer that is fed D x has the gradient g D, g its gradient for x: the gradient of feature j
is multiplied by D_j before clipping. Clipping and noise then treat all coordinates alike, so in the
features' own coordinates the noise is sigma C / D_j: less relevant features carry more of it. That
is the paper's idea, in training instead of in the data, under the guarantee of DP-SGD; relevance is
paid for first.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet import loss as losses
from privet.guarantee import Guarantee, Premise
from privet.ledger import Ledger, Scope
from privet.methods.adaptive_laplace.moments import OneShotMoments
from privet.methods.adaptive_laplace.solve import shape_of
from privet.methods.base import PublicFacts, check_per_record
from privet.nets.features import Features
from privet.noise import Source

Array = NDArray[Any]


@final
class RelevanceScaling(Features):
    """Rows with feature j multiplied by D_j, scaled to the unit ball: a map that was paid for.

    Made by `private_relevance`; from then on a fixed map, to be used as `features=` of a private
    estimator on the same data, with what is left of the budget.
    """

    def __init__(self, shape: NDArray[np.float64], guarantee: Guarantee) -> None:
        self.shape, self.guarantee = shape, guarantee

    def _raw(self, x: NDArray[Any]) -> NDArray[np.float32]:
        rows = np.asarray(x, dtype=np.float32).reshape(len(x), -1)
        return rows * self.shape.astype(np.float32)

    @property
    def premise(self) -> Premise:
        """Enforced: one multiplication an entry."""
        return premises.EXACT_ROWS

    @property
    def n_features(self) -> int:
        """As many as came in."""
        return len(self.shape)

    @property
    def recipe(self) -> str:
        """Names the shape by its content."""
        return f"relevance-1 {hashlib.sha256(self.shape.tobytes()).hexdigest()[:16]}"


def private_relevance(
    rows: Array,
    labels: Array,
    *,
    classes: int,
    epsilon: float,
    delta: float,
    share: float = 0.05,
    exponent: float = 0.5,
    records: int,
    rng: Source,
    ledger: Ledger | None = None,
) -> tuple[RelevanceScaling, float]:
    """The scaling by private relevance, and the epsilon that is left of the budget for training.

    Of mu^2, the budget as a Gaussian one, `share` goes to the class sums and squares that relevance
    is computed from (`moments`); the rest, as an epsilon at the same delta, is returned. Training
    that is itself a composition of full-batch Gaussian steps then adds up to exactly `epsilon`;
    with sampled steps, let a ledger with this cap compose the two.

    **Guarantee** `RelevanceScaling.guarantee`, add-remove; charged before anything is drawn.

    **Assumes** `records` and the classes are public; rows are in the unit ball (others are held
    there).

    >>> from privet.noise import seeded
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 4)) / 4; y = (x[:, 2] > 0).astype(int)
    >>> front, left = private_relevance(
    ...     x, y, classes=2, epsilon=1.0, delta=1e-5, records=5000, rng=seeded(0))
    >>> int(front.shape.argmax()), 0.95 < left < 1.0
    (2, True)

    Adaptive Laplace Mechanism, Algorithm 1, lines 1-11, with a release in place of Lemma 1.
    """
    mu = losses.gaussian_mu(_check.positive("epsilon", epsilon), _check.open_unit("delta", delta))
    share = _check.open_unit("share", share)
    left = losses.gaussian_epsilon(math.sqrt(1.0 - share) * mu, delta)
    x = np.asarray(rows).reshape(len(rows), -1)
    facts = PublicFacts(
        records=records, features=x.shape[1], outputs=classes, epsilon=epsilon, delta=delta
    )
    method = OneShotMoments()
    plan = method.first_plan(facts, mu=math.sqrt(share) * mu)
    if ledger is not None:
        check_per_record(ledger)
        ledger.charge(plan.loss, what="private relevance", scope=Scope(secret=rng.secret))
    means = method.class_means(x, np.asarray(labels), plan, None, rng)
    stated = plan.loss.guarantee(delta, theorem=plan.theorem)
    return RelevanceScaling(shape_of(means.relevance, exponent), stated), left
