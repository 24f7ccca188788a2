"""Private relevance as a front end: what it finds, what it costs, and that nothing is lost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privet.errors import BudgetExceeded
from privet.ledger import Ledger
from privet.loss import Gaussian, gaussian_mu
from privet.methods.adaptive_laplace import private_relevance
from privet.noise import seeded


def records(n: int = 8000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)) / 5.0
    return x, (x[:, 1] + 0.05 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_relevance_and_training_fill_the_budget_together(epsilon: float, share: float) -> None:
    x, y = records()
    ledger = Ledger.in_memory(cap_epsilon=epsilon, cap_delta=1e-5)
    front, left = private_relevance(
        x,
        y,
        classes=2,
        epsilon=epsilon,
        delta=1e-5,
        share=share,
        records=8000,
        rng=seeded(0),
        ledger=ledger,
    )
    training = Gaussian(mu=gaussian_mu(left, 1e-5) * (1.0 - 1e-9))
    assert ledger.affords(training)
    ledger.charge(training, what="training")
    assert ledger.spent() > 0.999 * epsilon
    assert front.guarantee.epsilon < left < epsilon
    with pytest.raises(BudgetExceeded):
        private_relevance(
            x, y, classes=2, epsilon=epsilon, delta=1e-5, records=8000, rng=seeded(0), ledger=ledger
        )


def test_noise_falls_on_irrelevant_features_first() -> None:
    x, y = records()
    front, _ = private_relevance(
        x, y, classes=2, epsilon=1.0, delta=1e-5, records=8000, exponent=1.0, rng=seeded(0)
    )
    others = np.delete(front.shape, 1)
    assert front.shape[1] > 2 * others.max()
    rows = front.transform(x)
    assert np.linalg.norm(rows.astype(float), axis=1).max() <= 1.0 and front.n_features == 6
    assert math.isclose(
        float(rows[0, 1] / rows[0, 0]),
        x[0, 1] * front.shape[1] / (x[0, 0] * front.shape[0]),
        rel_tol=1e-5,
    )
    assert "relevance" in front.recipe
