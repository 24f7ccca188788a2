"""The shift of normal scores: power where one event is not enough, level, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privet.accounting import gaussian_mu
from privet.audit import NormalShiftAudit, Verdict, gaussian_score, normal_shift_bound
from privet.errors import InvalidArgument
from privet.noise import Source, seeded


def draw(shift: float, sigma: float, noise: float = 1.0):
    def scores(n: int, rng: Source) -> np.ndarray:
        out = shift + noise * rng.gaussian((n, 1), sigma)
        return gaussian_score(out, present=1.0, absent=0.0, scale=sigma)

    return scores


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_power_on_gaussian(epsilon: float) -> None:
    """At least 90% of the truth with 10^5 draws a side, and not above it (once in 20 at most)."""
    sigma = 1.0 / gaussian_mu(epsilon, 1e-5)
    found = NormalShiftAudit(trials=100_000, delta=1e-5).run(
        what="Gaussian", with_record=draw(1.0, sigma), without_record=draw(0.0, sigma),
        control=(draw(1.0, sigma, 0.0), draw(0.0, sigma, 0.0)), claimed=None, proved=epsilon, rng=seeded(21),
    )  # fmt: skip
    assert 0.9 * epsilon <= found.audited <= epsilon
    assert found.parametric and found.verdict is Verdict.CONSISTENT and found.control == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.0, 0.3, 3.0])
def test_bounds_hold_at_the_true_shift(mu: float) -> None:
    """2000 audits at 90%: above the truth at most 10% + chance (a sound one fails in .0015)."""
    rng = np.random.default_rng(8)
    above = sum(
        normal_shift_bound(rng.normal(size=120) + mu, rng.normal(size=150), alpha=0.1) > mu
        for _ in range(2000)
    )
    assert above <= stats.binom.ppf(0.9985, 2000, 0.1)


def test_limit_agrees_with_the_noncentral_t() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=200) + 0.8, rng.normal(size=200)
    limit = normal_shift_bound(a, b, alpha=0.05)
    t = stats.ttest_ind(a, b).statistic
    # at the limit, a t as large has probability alpha
    assert stats.nct.sf(t, 398, limit * 10.0) == pytest.approx(0.05, abs=1e-6)


def test_other_shapes_are_refused() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(InvalidArgument, match="OneShotAudit assumes no shape"):
        normal_shift_bound(rng.laplace(size=5000), rng.normal(size=5000), alpha=0.05)
    with pytest.raises(InvalidArgument, match="at least 100"):
        normal_shift_bound(np.zeros(5), np.zeros(5), alpha=0.05)
    with pytest.raises(InvalidArgument, match="finite scores"):
        NormalShiftAudit(trials=100).epsilon(lambda n, r: np.full(n, np.inf), lambda n, r: np.zeros(n), seeded(0))  # fmt: skip
    assert normal_shift_bound(np.zeros(100), np.ones(100), alpha=0.05) == 0.0
