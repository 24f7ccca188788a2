"""Bounds at the best of many thresholds, and intervals by drawing again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privet.audit import all_thresholds_bound, bootstrap_interval, epsilon_bound
from privet.errors import InvalidArgument
from privet.noise import seeded


def laplace(shift: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.laplace(shift, 1.0, n), rng.laplace(0.0, 1.0, n)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_best_threshold_is_found_from_either_side(epsilon: float) -> None:
    inside, outside = laplace(epsilon, 20_000)
    found = all_thresholds_bound(inside, outside, delta=0.0, alpha=0.05)
    assert 0.88 * epsilon < found < epsilon
    for a, b in ((outside, inside), (-inside, -outside)):
        assert all_thresholds_bound(a, b, delta=0.0, alpha=0.05) == pytest.approx(found, rel=1e-9)
    # the best single event, which nobody knows beforehand, finds no more than a twentieth more
    hits = [int((s > epsilon).sum()) for s in (inside, outside)]
    assert found > 0.95 * epsilon_bound(*hits, 20_000, delta=0.0, alpha=0.05)


def test_a_hidden_event_counts_only_beyond_delta() -> None:
    outside = np.zeros(5000)
    inside = np.where(np.arange(5000) < 500, 1.0, 0.0)  # shown in a tenth of all draws
    assert all_thresholds_bound(inside, outside, delta=0.0, alpha=0.05) > math.log(50)
    assert all_thresholds_bound(inside, outside, delta=0.11, alpha=0.05) == 0.0


@pytest.mark.slow
def test_it_is_below_the_truth_as_often_as_it_says() -> None:
    """400 audits at 80%: more than 20% and chance would be above; a sound bound fails once in 1000.

    Scores with ties are bounded too.
    """
    for rounded in (False, True):
        above = 0
        for seed in range(400):
            a, b = laplace(1.0, 300, seed)
            if rounded:
                a, b = np.round(a), np.round(b)
            above += all_thresholds_bound(a, b, delta=0.0, alpha=0.2) > 1.0
        assert above <= stats.binom.isf(0.001, 400, 0.2)


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say() -> None:
    """A difference of means, 200 times at 90%: the exact binomial limits at 1 in 1000."""
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(1.0, 1.0, 80), rng.normal(0.0, 2.0, 60)
        low, high = bootstrap_interval(
            lambda x, y: float(x.mean() - y.mean()), a, b, rng=seeded(seed), confidence=0.9,
            samples=200,
        )  # fmt: skip
        covered += low <= 1.0 <= high
    low, high = stats.binom.interval(0.998, 200, 0.88)  # percentiles of means are a little narrow
    assert low <= covered <= stats.binom.ppf(0.999, 200, 0.9)


def test_what_is_no_score_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="none of them NaN"):
        all_thresholds_bound([1.0, math.nan], [0.0], delta=0.0, alpha=0.05)
