"""Every mechanism audited through its own release: near the proof, never above it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from privet.audit import NormalShiftAudit, OneShotAudit, Verdict, gaussian_score, laplace_score
from privet.mechanisms import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    RandomisedResponse,
)
from privet.noise import seeded
from privet.sensitivity import categories, count

TRIALS = 50_000


def draw(mechanism, there: int, score, scale: float):
    def scores(n, rng):
        bounded = count([True] * there)
        many = replace(bounded, value=np.full((n, 1), float(there)))
        return score(mechanism.release(many, rng=rng), present=1.0, absent=0.0, scale=scale)

    return scores


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "quiet", "score", "delta", "reach"),
    [
        (LaplaceMechanism(scale=1.0), LaplaceMechanism(scale=1e-6), laplace_score, 0.0, 0.9),
        (
            DiscreteLaplaceMechanism(scale=1.0),
            DiscreteLaplaceMechanism(scale=1e-3),
            laplace_score,
            0.0,
            0.9,
        ),
        (GaussianMechanism(scale=2.0), GaussianMechanism(scale=1e-6), gaussian_score, 1e-5, 0.4),
        (
            DiscreteGaussianMechanism(scale=2.0),
            DiscreteGaussianMechanism(scale=1e-2),
            gaussian_score,
            1e-5,
            0.4,
        ),
    ],
    ids=["laplace", "discrete laplace", "gaussian", "discrete gaussian"],
)
def test_a_count(mechanism, quiet, score, delta, reach) -> None:
    """One record more in a count; above the proof with probability 5% at most, seed fixed."""
    proved = mechanism.loss(count([True])).epsilon(delta)
    found = OneShotAudit(trials=TRIALS, pilot=10_000, delta=delta).run(
        what="a count", with_record=draw(mechanism, 1, score, mechanism.scale),
        without_record=draw(mechanism, 0, score, mechanism.scale),
        control=(draw(quiet, 1, score, mechanism.scale), draw(quiet, 0, score, mechanism.scale)),
        claimed=None, proved=proved, rng=seeded(4),
    )  # fmt: skip
    assert reach * proved < found.audited <= proved
    assert found.verdict is Verdict.CONSISTENT


def test_gaussian_from_all_scores() -> None:
    mechanism, quiet = GaussianMechanism(scale=2.0), GaussianMechanism(scale=1e-6)
    found = NormalShiftAudit(trials=TRIALS, delta=1e-5).run(
        what="a count", with_record=draw(mechanism, 1, gaussian_score, 2.0),
        without_record=draw(mechanism, 0, gaussian_score, 2.0),
        control=(draw(quiet, 1, gaussian_score, 2.0), draw(quiet, 0, gaussian_score, 2.0)),
        claimed=None, proved=mechanism.loss(count([True])).epsilon(1e-5), rng=seeded(4),
    )  # fmt: skip
    assert 0.95 * found.proved < found.audited <= found.proved


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response(epsilon: float) -> None:
    mechanism = RandomisedResponse(classes=4, epsilon=epsilon)

    def answers(label: int, how: RandomisedResponse):
        def scores(n, rng):
            said = how.release(categories(np.full(n, label), 4), rng=rng)
            return epsilon * ((said == 0).astype(float) - (said == 1))

        return scores

    sure = RandomisedResponse(classes=4, epsilon=30.0)
    found = OneShotAudit(trials=TRIALS, pilot=10_000).run(
        what="one answer", with_record=answers(0, mechanism), without_record=answers(1, mechanism),
        control=(answers(0, sure), answers(1, sure)), claimed=None, proved=mechanism.loss().epsilon(0.0), rng=seeded(5),
    )  # fmt: skip
    assert 0.85 * epsilon < found.audited <= found.proved <= epsilon * (1 + 1e-9)
    assert found.verdict is Verdict.CONSISTENT and math.isfinite(found.ceiling)
