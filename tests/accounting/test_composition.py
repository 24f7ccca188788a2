"""Sums of losses: binned schedules, the lattice, mixtures of kinds, and what composition must obey."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf
from scipy.stats import binom

from privet.accounting import (
    KINDS,
    ZCDP,
    ApproximateDP,
    Direction,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PrivacyLoss,
    Pure,
    SampledGaussian,
    SampledLaplace,
    compose,
    fft_accountant,
    from_dict,
    gaussian_epsilon,
    moment_generating_functions,
    poisson_sampling,
)
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency

EXAMPLES: list[PrivacyLoss] = [
    Pure(epsilon_each=0.2, times=20),
    Laplace(epsilon_each=0.2, times=20),
    ApproximateDP(epsilon_each=0.3, delta_each=1e-8, times=3),
    ZCDP(rho=0.05),
    Gaussian(mu=0.7),
    SampledGaussian(sample_rate=0.02, noise_multiplier=0.9, steps=300),
    SampledLaplace(sample_rate=0.02, noise_multiplier=0.9, steps=300),
    FixedSizeGaussian(sample_rate=0.02, noise_multiplier=3.0, steps=100),
]


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(e) for e in EXAMPLES} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("loss", EXAMPLES, ids=lambda e: type(e).__name__)
def test_what_every_loss_obeys(loss: PrivacyLoss) -> None:
    """Monotone in delta, delta undoes epsilon, JSON round trip, two cost more than one, nothing is free."""
    tight, loose = loss.epsilon(1e-7), loss.epsilon(1e-3)
    assert 0.0 < loose < tight < math.inf
    # both err upwards, each by its own few parts in a thousand of delta
    assert 0.99e-7 <= loss.delta(tight) <= 1.005e-7
    assert loss.delta(0.5 * tight) >= loss.delta(tight)
    assert from_dict(loss.to_dict()) == loss
    twice = loss + loss
    assert tight < twice.epsilon(1e-7) <= 2.0 * loss.epsilon(0.5e-7) * (1 + 1e-3)
    assert twice.epsilon(1e-7) == pytest.approx(loss.parts[0].repeat(2).epsilon(1e-7), rel=1e-9)
    with_nothing = loss + Gaussian(mu=0.0, adjacency=loss.adjacency)
    assert with_nothing == loss


def test_pure_losses_compose_to_the_exact_binomial_answer() -> None:
    """k randomised responses: delta = sum over counts, Kairouz, Oh and Viswanath 2015."""
    e, k, epsilon = 0.3, 15, 1.5
    counts = np.arange(k + 1)
    losses = e * (2 * counts - k)
    weights = binom.pmf(counts, k, math.exp(e) / (1 + math.exp(e)))
    exact = float(np.sum(weights * np.maximum(1 - np.exp(epsilon - losses), 0)))
    ours = Pure(epsilon_each=e, times=k).delta(epsilon)
    assert exact <= ours <= exact * 1.005
    assert Pure(epsilon_each=e, times=k).epsilon(0.0) == pytest.approx(e * k)


def test_failures_add_up() -> None:
    loss = ApproximateDP(epsilon_each=0.5, delta_each=1e-6, times=4)
    assert loss.epsilon(3e-6) == math.inf
    assert loss.epsilon(5e-6) <= 2.0
    assert loss.delta(2.0) == pytest.approx(4e-6, rel=1e-4)


def test_laplace_and_gaussian_against_a_convolution() -> None:
    """E over the Laplace loss of the Gaussian profile."""
    e, mu, epsilon = 0.8, 0.6, 1.0
    t = np.linspace(-e, e, 20_001)
    inner = 0.25 * np.exp(
        (t - e) / 2
    )  # density of the loss of Lap(0) against Lap(e) under the first
    profile = Gaussian(mu=mu).profile(epsilon - t, Direction.REMOVE)
    ends = Gaussian(mu=mu).profile(np.array([epsilon - e, epsilon + e]), Direction.REMOVE)
    exact = np.trapezoid(inner * profile, t) + 0.5 * ends[0] + 0.5 * math.exp(-e) * ends[1]
    ours = (Laplace(epsilon_each=e) + Gaussian(mu=mu)).delta(epsilon)
    assert exact <= ours <= exact * 1.002


@pytest.mark.slow
@given(st.lists(st.sampled_from(range(7)), min_size=1, max_size=4))
@settings(max_examples=12, deadline=None)
def test_order_does_not_matter_and_more_costs_more(which: list[int]) -> None:
    losses = [EXAMPLES[i] for i in which]
    forward, backward = compose(losses), compose(losses[::-1])
    assert forward.epsilon(1e-5) == pytest.approx(backward.epsilon(1e-5), rel=1e-6)
    assert forward.epsilon(1e-5) >= max(x.epsilon(1e-5) for x in losses) * (1 - 5e-4)


def test_convexity_lemma_by_dense_search() -> None:
    """delta of a sampled step lies below the chord in s and in q, for many epsilons, both ways."""
    rng = np.random.default_rng(1)
    epsilons = np.concatenate([-np.geomspace(1e-4, 3, 40), [0.0], np.geomspace(1e-4, 8, 80)])
    for _ in range(60):
        mu = np.sort(rng.uniform(0.02, 3.0, size=3))
        s = erf(mu / (2 * math.sqrt(2)))
        weight = (s[1] - s[0]) / (s[2] - s[0])
        q = 10 ** rng.uniform(-3, 0)
        for direction in Direction:
            low, mid, high = (
                SampledGaussian(sample_rate=q, noise_multiplier=1 / m).profile(epsilons, direction)
                for m in mu
            )
            assert np.all(mid <= (1 - weight) * low + weight * high + 1e-14)
            q3 = np.sort(10 ** rng.uniform(-3, 0, size=3))
            part = (q3[1] - q3[0]) / (q3[2] - q3[0])
            low, mid, high = (
                SampledGaussian(sample_rate=x, noise_multiplier=1 / mu[1]).profile(
                    epsilons, direction
                )
                for x in q3
            )
            assert np.all(mid <= (1 - part) * low + part * high + 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SampledGaussian, SampledLaplace])
@pytest.mark.parametrize("vary", ["noise", "rate", "both"])
def test_binned_schedules_dominate_and_stay_close(
    kind: type[SampledGaussian], vary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 400
    t = np.linspace(0, 1, steps)
    q = np.full(steps, 0.03) if vary == "noise" else 0.01 + 0.04 * t**2
    z = np.full(steps, 1.3) if vary == "rate" else 0.8 + 2.0 * t
    binned = kind(sample_rate=q, noise_multiplier=z).epsilon(1e-6)
    monkeypatch.setattr(poisson_sampling, "_MOST_EXACT", 10_000)
    monkeypatch.setattr(
        moment_generating_functions, "MOST_PRODUCTS", math.inf
    )  # it may take its time here
    exact = kind(sample_rate=q, noise_multiplier=z).epsilon(1e-6)
    assert exact * (1 - 1e-5) <= binned <= exact * 1.001


@pytest.mark.slow
def test_replace_one_schedules_are_rounded_towards_less_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {
        "sample_rate": np.linspace(0.01, 0.03, 260),
        "noise_multiplier": np.linspace(1.0, 1.3, 260),
        "adjacency": Adjacency.REPLACE_ONE,
    }
    binned = SampledGaussian(**settings).epsilon(1e-5)
    monkeypatch.setattr(poisson_sampling, "_MOST_EXACT", 10_000)
    exact = SampledGaussian(**settings).epsilon(1e-5)
    assert exact * (1 - 1e-5) <= binned <= exact * 1.003


@pytest.mark.slow
def test_a_hundred_thousand_distinct_steps() -> None:
    """The cosine schedule of the notes: 4.72 at T = 1e5, where the closed form says 3.75."""
    steps = 100_000
    z = 0.8 + 1.1 * (1 + np.cos(np.pi * np.arange(steps) / (steps - 1)))
    loss = SampledGaussian(sample_rate=np.full(steps, steps**-0.5), noise_multiplier=z)
    assert loss.epsilon(1e-6) == pytest.approx(4.72, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "z", "steps", "delta"),
    [(0.01, 1.0, 100, 1e-6), (0.1, 2.0, 500, 1e-9), (0.3, 4.0, 40, 1e-4)],
)
def test_lattice_agrees_with_the_contour(q: float, z: float, steps: int, delta: float) -> None:
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps, adjacency=adjacency)
        contour_value = loss.epsilon(delta)
        releases = fft_accountant.releases_of(loss.parts, Direction.REMOVE)
        assert releases is not None
        low, high, _ = fft_accountant.epsilon(
            releases, Direction.REMOVE, delta, 1.3 * contour_value
        )
        assert low <= contour_value
        assert high == pytest.approx(contour_value, rel=6e-4)


def test_full_rate_sampled_plus_gaussian_is_gaussian() -> None:
    mixed = SampledGaussian(sample_rate=1.0, noise_multiplier=2.0) + Gaussian(mu=0.5)
    exact = gaussian_epsilon(math.hypot(0.5, 0.5), 1e-6)
    assert exact <= mixed.epsilon(1e-6) <= exact * 1.001


def test_unknown_kind_is_named() -> None:
    with pytest.raises(InvalidArgument, match="kind must be one of"):
        from_dict({"adjacency": "add-remove", "parts": [{"kind": "Wish"}]})


@pytest.mark.parametrize(
    "build",
    [
        lambda: Pure(epsilon_each=-1.0),
        lambda: Pure(epsilon_each=1.0, times=0),
        lambda: Laplace(epsilon_each=float("nan")),
        lambda: ApproximateDP(epsilon_each=1.0, delta_each=1.5),
        lambda: ZCDP(rho=-0.1),
        lambda: SampledLaplace(
            sample_rate=0.1, noise_multiplier=1.0, adjacency=Adjacency.REPLACE_ONE
        ),
        lambda: FixedSizeGaussian(
            sample_rate=0.1, noise_multiplier=1.0, adjacency=Adjacency.ADD_REMOVE
        ),
    ],
)
def test_bad_settings(build: object) -> None:
    with pytest.raises(InvalidArgument):
        build()  # type: ignore[operator]


@pytest.mark.slow
def test_random_settings_against_a_finer_lattice() -> None:
    """30 random settings over the whole range that is promised; seeded, so it cannot fail by chance."""
    from benchmarks.accounting import fine_lattice

    rng = np.random.default_rng(11)
    for _ in range(30):
        loss = SampledGaussian(
            sample_rate=10 ** rng.uniform(-4, 0),
            noise_multiplier=10 ** rng.uniform(math.log10(0.5), math.log10(50)),
            steps=int(10 ** rng.uniform(0, 6)),
        )
        delta = 10 ** rng.uniform(-12, -3)
        ours = loss.epsilon(delta)
        if 0.0 < ours < 300.0:
            low, high = loss.epsilon_bounds(delta)
            assert high == ours and high - low <= 1.2e-3 * high
            truth_low, truth_high = fine_lattice(loss, delta, ours)
            assert truth_low <= ours and low <= truth_high
