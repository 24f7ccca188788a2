"""Trade-off curves: against dp-accounting, closed forms, and each other."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privet.accounting import (
    ZCDP,
    ApproximateDP,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PrivacyLoss,
    Pure,
    SampledGaussian,
    SampledLaplace,
)
from privet.accounting.trade_off import trade_off_of_statement
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency

peer: Any = pytest.importorskip(
    "dp_accounting.pld.privacy_loss_distribution", reason="the peer is not installed"
)
RATES = np.array([1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9])
SETTINGS: list[tuple[float, float, int]] = [
    *itertools.product((0.001, 0.01, 0.1), (0.6, 1.0, 2.0, 4.0), (1, 20, 400)),
    *itertools.product((0.3, 1.0), (1.0, 3.0), (1, 5, 30)),
    (0.02, 0.8, 2000), (0.05, 5.0, 2000),
]  # fmt: skip


def textbook(distribution: Any, rates: np.ndarray) -> np.ndarray:
    """TPR at FPR by Neyman and Pearson from the masses of a loss: the largest losses first.

    What riskcal does: an outcome of loss L and P-mass p has the Q-mass p e^-L.
    """
    pmf = distribution.to_dense_pmf()
    losses = (pmf._lower_loss + np.arange(len(pmf._probs))) * pmf._discretization
    p, q = pmf._probs[::-1], (pmf._probs * np.exp(-losses))[::-1]
    tpr = np.concatenate([[0.0], np.cumsum(p)]) + pmf._infinity_mass
    fpr = np.concatenate([[0.0], np.cumsum(q)])
    return np.interp(rates, np.append(fpr, 1.0), np.append(tpr, 1.0))


def peers(pld: Any, rates: np.ndarray) -> np.ndarray:
    """The larger one of both directions."""
    return np.maximum(textbook(pld._pmf_remove, rates), textbook(pld._pmf_add, rates))


def test_there_are_fifty_settings() -> None:
    assert len(SETTINGS) == 50


@pytest.mark.slow
@pytest.mark.parametrize(("q", "z", "steps"), SETTINGS)
def test_brackets_the_peers_curve(q: float, z: float, steps: int) -> None:
    """Theirs, rounded up and rounded down, encloses the truth as ours does; all four are close."""
    interval = 4e-4
    above, below = (
        peers(
            peer.from_gaussian_mechanism(
                z,
                sampling_prob=q,
                value_discretization_interval=interval,
                pessimistic_estimate=up,
                use_connect_dots=up,
            ).self_compose(steps),
            RATES,
        )
        for up in (True, False)
    )
    ours = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps).trade_off()
    low, high = ours.curve(RATES)
    assert np.all(low <= above * (1.0 + 1e-9))
    assert np.all(high >= below * (1.0 - 1e-9))
    assert np.all(high <= 1.004 * low)
    assert np.all(high <= 1.005 * above)


@pytest.mark.slow
@pytest.mark.parametrize(("q", "z", "steps"), SETTINGS)
def test_brackets_riskcals_conversions(q: float, z: float, steps: int) -> None:
    """FNR at FPR and the advantage by riskcal itself (`pip install privet[peers]`).

    Its masses add up to 1 only to `error`, from dp-accounting's FFT, which is that much of a FPR:
    at 1e-5 it can be all of it (5% of the TPR at q .02, z .8, 2,000 steps).
    """
    riskcal: Any = pytest.importorskip("riskcal.analysis", reason="the peer is not installed")
    pld = peer.from_gaussian_mechanism(
        z, sampling_prob=q, value_discretization_interval=4e-4, use_connect_dots=True
    ).self_compose(steps)
    masses = (pmf.to_dense_pmf() for pmf in (pld._pmf_remove, pld._pmf_add))
    error = max(abs(p._probs.sum() + p._infinity_mass - 1.0) for p in masses) + 1e-12
    above = 1.0 - riskcal.get_beta_from_pld(pld, alpha=RATES)
    ours = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps).trade_off()
    fewer = ours.curve(np.maximum(RATES - error, 0.0))[0]
    assert np.all(fewer <= above * (1.0 + 1e-4) + error)
    assert ours.advantage()[0] <= riskcal.get_advantage_from_pld(pld) * (1.0 + 1e-3)
    usual = error < 1e-3 * RATES  # elsewhere its own rounding is larger than what is compared
    assert np.all(ours.curve(RATES)[1][usual] <= 1.005 * above[usual])
    assert usual.any()


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 7, 60])
def test_laplace_and_pure_against_the_peer(times: int) -> None:
    for loss, pld in (
        (Laplace(epsilon_each=0.3, times=times), peer.from_laplace_mechanism(1 / 0.3)),
        (
            Pure(epsilon_each=0.3, times=times),
            peer.from_randomized_response(2.0 / (1.0 + math.exp(0.3)), 2),
        ),
    ):
        low, high = loss.trade_off().curve(RATES)
        above = peers(pld.self_compose(times), RATES)
        assert np.all(low <= above * (1.0 + 1e-9)) and np.all(high <= 1.005 * above)
        assert np.all(high <= 1.005 * low)


@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 3.7])
def test_a_gaussian_release_has_its_mu_exactly(mu: float) -> None:
    curve = Gaussian(mu=mu).trade_off()
    low, high = curve.curve(RATES)
    exact = norm.cdf(norm.ppf(RATES) + mu)
    assert np.allclose(low, exact, rtol=1e-9) and np.allclose(high, exact, rtol=1e-9)
    assert curve.mu() == (mu, mu)
    assert curve.advantage()[1] == pytest.approx(2.0 * norm.cdf(mu / 2.0) - 1.0, rel=1e-11)


def test_the_lines_of_a_gaussian_release_lie_around_it() -> None:
    """A tiny pure release makes it a composition, so that nothing is a closed form."""
    curve = (Gaussian(mu=0.9) + Pure(epsilon_each=1e-12)).trade_off()
    assert curve.exact_mu is None
    low, high = curve.curve(RATES)
    exact = norm.cdf(norm.ppf(RATES) + 0.9)
    assert np.all(low <= exact * (1 + 1e-9)) and np.all(exact <= high * (1 + 1e-9))
    assert np.all(high <= 1.003 * low)
    mu = curve.mu()
    assert mu[0] <= 0.9 <= mu[1] * (1 + 1e-9) <= 0.9 * 1.003


def test_one_pair_has_its_known_curve() -> None:
    """min(e^eps a + d, 1 - e^-eps (1 - a - d)), from both sides."""
    for epsilon, delta in ((1.0, 1e-5), (0.2, 0.0), (6.0, 1e-3)):
        low, high = trade_off_of_statement(epsilon, delta).curve(RATES)
        grow = math.exp(epsilon)
        exact = np.minimum(grow * RATES + delta, 1.0 - (1.0 - RATES - delta) / grow)
        assert np.allclose(low, exact, rtol=1e-4) and np.allclose(high, exact, rtol=1e-4)
        assert np.all(low <= exact * (1 + 1e-12)) and np.all(exact <= high * (1 + 1e-12))
    assert trade_off_of_statement(math.inf, 0.0).tpr(0.0) == (1.0, 1.0)
    assert trade_off_of_statement(math.inf, 0.0).advantage()[1] == 1.0


def test_laplace_has_its_known_curve() -> None:
    """One release, by the likelihood-ratio test of Lap(0) against Lap(e): three pieces."""
    e = 1.0
    low, high = Laplace(epsilon_each=e).trade_off().curve(RATES)
    exact = np.where(
        math.exp(-e) / 2.0 > RATES,
        math.exp(e) * RATES,
        np.where(RATES < 0.5, 1.0 - math.exp(-e) / (4.0 * RATES), 1.0 - math.exp(-e) * (1 - RATES)),
    )
    assert np.all(low <= exact * (1 + 1e-9)) and np.all(exact <= high * (1 + 1e-9))
    assert np.all(high <= 1.002 * low)


@pytest.mark.slow
def test_advantage_is_delta_at_zero() -> None:
    for loss in (SampledGaussian(sample_rate=0.1, noise_multiplier=1.0, steps=50),
                 Laplace(epsilon_each=0.2, times=4)):  # fmt: skip
        low, high = loss.trade_off().advantage()
        exact = loss.delta_bounds(0.0)
        assert low <= exact[1] and exact[0] <= high <= 1.01 * low


@pytest.mark.slow
def test_the_first_law_may_be_either() -> None:
    """Sampled releases are easier to attack in one direction; the curve is that of the worse one."""
    loss = SampledGaussian(sample_rate=0.1, noise_multiplier=0.7, steps=3)
    curve = loss.trade_off()
    assert len(curve.lines) == 2
    each = [lines.most(RATES) for lines in curve.lines]
    assert np.all(curve.curve(RATES)[1] == np.maximum(*each))
    assert np.max(np.abs(each[0] / each[1] - 1.0)) > 0.2


@pytest.mark.slow
def test_zero_out_is_add_remove() -> None:
    one, other = (
        SampledGaussian(sample_rate=0.1, noise_multiplier=1.0, steps=9, adjacency=a).trade_off()
        for a in (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT)
    )
    assert one.tpr(0.01) == other.tpr(0.01) and other.adjacency is Adjacency.ZERO_OUT


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        SampledGaussian(
            sample_rate=0.1, noise_multiplier=1.5, steps=50, adjacency=Adjacency.REPLACE_ONE
        ),
        FixedSizeGaussian(sample_rate=0.05, noise_multiplier=3.0, steps=20),
        SampledLaplace(sample_rate=0.1, noise_multiplier=1.0, steps=30),
        ZCDP(rho=0.05) + Pure(epsilon_each=0.1),
        ApproximateDP(epsilon_each=0.1, delta_each=1e-6, times=10) + Gaussian(mu=0.3),
    ],
)
def test_every_pair_of_epsilon_and_delta_is_on_the_curve(loss: PrivacyLoss) -> None:
    """Each (epsilon, delta) that holds bounds the curve, and the low curve obeys what holds."""
    curve = loss.trade_off()
    low, high = curve.curve(RATES)
    assert np.all(low <= high) and np.all(low >= RATES)
    for delta in (1e-5, 1e-3, 0.05):
        least, most = loss.epsilon_bounds(delta)
        bound = np.minimum(
            math.exp(most) * RATES + delta, 1 - math.exp(-most) * (1 - RATES - delta)
        )
        assert np.all(low <= bound * (1 + 1e-9))
        if most - least < 2e-3 * most:  # where the bounds are close, so is the curve
            assert np.all(high <= bound * 1.005)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.floats(0.01, 1.5), min_size=1, max_size=3),
    st.floats(0.0, 0.01),
    st.floats(1e-6, 1.0),
)
def test_curves_are_curves(sizes: list[float], delta: float, rate: float) -> None:
    """Above chance, rising, larger for more releases, and the concave hull bounds guesses."""
    loss: PrivacyLoss = Laplace(epsilon_each=sizes[0])
    for e in sizes[1:]:
        loss = loss + Pure(epsilon_each=e)
    more = loss + ApproximateDP(epsilon_each=0.1, delta_each=delta)
    curve, worse = loss.trade_off(), more.trade_off()
    assert rate <= curve.tpr(rate)[0] <= curve.tpr(rate)[1] <= 1.0
    assert curve.tpr(0.5 * rate)[0] <= curve.tpr(rate)[1]
    assert curve.tpr(rate)[0] <= worse.tpr(rate)[1]
    assert curve.tpr(rate)[1] <= curve.guess(rate) * (1 + 1e-9)
    assert curve.mu()[0] <= worse.mu()[1]
    assert rate <= curve.precision(rate, 0.01) or rate == 1.0
    low, high = curve.mu()
    assert norm.cdf(norm.ppf(0.01) + high) >= curve.tpr(0.01)[0] * (1 - 1e-9)
    assert low <= high


def test_guessing_a_secret_of_two_values_is_bounded() -> None:
    """Randomised response to two values: e^eps / (1 + e^eps) of a bit is right, below the bound."""
    for epsilon in (0.5, 1.0, 3.0):
        right = math.exp(epsilon) / (1.0 + math.exp(epsilon))
        assert right <= trade_off_of_statement(epsilon, 0.0).guess(0.5) < 1.0


def test_wrong_rates_are_refused() -> None:
    curve = Pure(epsilon_each=1.0).trade_off()
    for call in (lambda: curve.tpr(1.5), lambda: curve.mu(0.0), lambda: curve.guess(-1.0)):
        with pytest.raises(InvalidArgument):
            call()
