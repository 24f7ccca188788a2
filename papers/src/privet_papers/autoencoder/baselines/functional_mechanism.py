"""FM: logistic regression by the functional mechanism, with Laplace noise on its coefficients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import premises
from privet.guarantee import Standing, Unit
from privet.sensitivity import (
    BoundedValue,
    Moments,
    Quadratic,
    Sensitivity,
    moments,
    user_weights,
)
from privet_papers.autoencoder.baselines.private_regression import (
    PrivateRegression,
    check_examples,
    columns,
)
from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.predictor import sigmoid

Array = NDArray[np.float64]


@final
class FunctionalMechanism(PrivateRegression):
    """FM (Zhang, Zhang, Xiao, Yang and Winslett 2012): order-2 logistic loss, Laplace noise.

    With ||x||_2 <= 1 a row contributes (1/2 - y) x and x x^T / 8. The paper bounds every |x_j| by 1
    and gets Delta = d^2/4 + 3 d for replacing a row, half of it for adding one. What follows from
    ||x||_2 <= 1 is sqrt(d)/2 + (d + 1)/16 for adding one: sum_{j <= l} |x_j x_l| = (||x||_1^2 +
    ||x||_2^2)/2, and ||x||_1 <= sqrt(d). `tight` draws noise for that. Regularised by 4 standard
    deviations of the noise and trimmed to positive eigenvalues, as the paper recommends.

    **Guarantee** `guarantee_`, pure epsilon, add-remove: per user (whose rows weigh 1 together, and
    who is in nobody else's rows: friends are not used) or per tuple. Without `tight` it is the
    small part of epsilon that the paper's noise really costs, and `claim_` is epsilon.
    """

    def __init__(self, *, tight: bool = False, all_columns: bool = False, **budget: Any) -> None:
        super().__init__(**budget)
        self.tight = tight
        self.columns = Examples.own if all_columns else columns

    def fit(self, examples: Examples) -> Self:
        """Release the coefficients and solve."""
        check_examples(examples, self.unit, self.ledger)
        x = _rows(self.columns(examples))
        d = x.shape[1]
        shape = Moments(features=d, outputs=1, one_hot=False)
        weights = user_weights(examples.user) if self.unit is Unit.USER else None
        signs = 1.0 - 2.0 * np.asarray(examples.status, dtype=np.float64)
        summed = moments(x, signs[:, None], of=shape, weights=weights)
        gram, cross = shape.unpack(summed.value)
        packed = np.concatenate([cross[:, 0] / 2.0, gram[np.triu_indices(d)] / 8.0])
        noisy, scale, _ = self.released(self._bounded(packed, d), "FM", share=self.share(d))
        if not self.tight:
            self.claim_ = replace(
                self.guarantee_, epsilon=self.epsilon, standing=Standing.CLAIMED,
                theorem="Zhang et al. (2012), theorem 1",
            )  # fmt: skip
        upper = np.zeros((d, d))
        upper[np.triu_indices(d)] = noisy[d:]
        matrix = upper + np.triu(upper, 1).T
        loss = Quadratic(curvature=2.0 * matrix, linear=noisy[:d, None])
        self.weights_ = loss.minimum(ridge=2.0 * 4.0 * math.sqrt(2.0) * scale)[:, 0]
        return self

    def share(self, d: int) -> float:
        """What the noise really costs, as a part of epsilon."""
        return 1.0 if self.tight else _l1_change(d) / (d * d / 8.0 + 1.5 * d)

    def _bounded(self, packed: Array, d: int) -> BoundedValue:
        # pairs j < l are packed once
        one = Sensitivity(
            l1=_l1_change(d) * (1.0 + 2.0**-30),
            l2=math.hypot(0.5, 0.125) * (1.0 + 2.0**-30),
        )
        text = "rows have length at most 1; a user's rows weigh at most 1 together"
        return BoundedValue(
            value=packed,
            add_remove=one,
            replace_one=one.scaled(2.0),
            premise=premises.bound(text),
            unit=self.unit,
        )

    def predict_proba(self, examples: Examples) -> Array:
        return sigmoid(_rows(self.columns(examples)) @ self.weights_)


def _l1_change(d: int) -> float:
    """How far, in L1, a row of length 1 moves the coefficients."""
    return math.sqrt(d) / 2.0 + (d + 1) / 16.0


def _rows(x: Array) -> Array:
    """Columns in [-1, 1] divided by sqrt(d): length at most 1."""
    return np.asarray(np.clip(x, -1.0, 1.0) / math.sqrt(x.shape[1]) * (1.0 - 2.0**-30))
