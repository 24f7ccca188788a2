"""Settings nobody should use, and what a review found there: never below a bound known otherwise."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from privet.accounting import (
    ZCDP,
    ComposedLoss,
    Direction,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PrivacyLoss,
    Pure,
    SampledGaussian,
    SampledLaplace,
    compose,
    contour_integral,
    gaussian_epsilon,
)
from privet.accounting.laplace import laplace_log_mgf
from privet.accounting.privacy_loss import VerticalLine
from privet.accounting.pure_and_approximate_dp import response_log_mgf
from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency

REPLACE = Adjacency.REPLACE_ONE


@pytest.mark.parametrize(
    "z",
    [
        pytest.param(0.01, marks=pytest.mark.slow),
        pytest.param(0.02, marks=pytest.mark.slow),
        pytest.param(0.03, marks=pytest.mark.slow),
        0.1,
    ],
)
def test_hardly_any_noise(z: float) -> None:
    """Being sampled once is seen for certain: delta is at least 1 - (1-q)^T at any epsilon below 1/2z^2."""
    steps = SampledGaussian(sample_rate=0.5, noise_multiplier=z, steps=3)
    assert steps.delta(1.0) >= 0.874
    one = SampledGaussian(sample_rate=0.5, noise_multiplier=z)
    replaced = SampledGaussian(sample_rate=0.5, noise_multiplier=z, adjacency=REPLACE)
    lower = gaussian_epsilon(1 / z, 2e-5) + math.log(0.5)
    assert lower <= one.epsilon(1e-5) * (1 + 1e-12)
    assert one.epsilon(1e-5) <= replaced.epsilon(1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("q", "delta"), [(1e-12, 1e-300), (1e-6, 1e-60), (0.01, 1e-45)])
def test_tiny_deltas_still_add_up(q: float, delta: float, adjacency: Adjacency) -> None:
    one, two = (
        SampledGaussian(sample_rate=q, noise_multiplier=1.0, steps=n, adjacency=adjacency)
        for n in (1, 2)
    )
    assert one.epsilon(delta) < two.epsilon(delta) <= 2 * one.epsilon(delta / 2) * (1 + 1e-9)


@pytest.mark.parametrize("z", [0.1, 0.3, 0.47])
def test_full_rate_with_little_noise(z: float) -> None:
    for adjacency, factor in ((Adjacency.ADD_REMOVE, 1.0), (REPLACE, 2.0)):
        steps = SampledGaussian(sample_rate=1.0, noise_multiplier=z, steps=4, adjacency=adjacency)
        exact = gaussian_epsilon(2.0 * factor / z, 1e-5)
        assert exact <= steps.epsilon(1e-5) <= exact * 1.001
    assert SampledLaplace(sample_rate=1.0, noise_multiplier=0.02).epsilon(0.0) == 50.0


def test_everything_ends_and_is_finite() -> None:
    assert SampledGaussian(sample_rate=1e-12, noise_multiplier=0.3, steps=2).epsilon(1e-5) == 0.0
    assert SampledGaussian(sample_rate=1e-3, noise_multiplier=1.0, steps=10**12).epsilon(1e-5) > 8e5
    assert math.isfinite(FixedSizeGaussian(sample_rate=0.5, noise_multiplier=0.05).epsilon(1e-5))
    assert Gaussian(mu=1e200).epsilon(1e-5) == math.inf
    assert Gaussian(mu=2e6).epsilon(1e-5) == pytest.approx(2e12, rel=1e-4)
    assert Gaussian(mu=1.0).delta(1000.0) > 0.0  # underflow must not read as pure privacy


@pytest.mark.slow
def test_binning_where_the_variation_is_all_but_one() -> None:
    z = np.linspace(0.06, 0.065, 300)
    binned = SampledGaussian(sample_rate=0.01, noise_multiplier=z).epsilon(1e-5)
    least = SampledGaussian(sample_rate=0.01, noise_multiplier=0.065, steps=300).epsilon(1e-5)
    most = SampledGaussian(sample_rate=0.01, noise_multiplier=0.06, steps=300).epsilon(1e-5)
    assert least <= binned <= most * 1.001


def test_a_schedule_does_not_follow_its_caller() -> None:
    z = np.full(3, 1.0)
    loss = SampledGaussian(sample_rate=np.full(3, 0.1), noise_multiplier=z)
    before = loss.epsilon(1e-5)
    z *= 10
    assert loss.epsilon(1e-5) == before
    for values in loss.groups:
        with pytest.raises(ValueError, match="read-only"):
            values[:] = 100


def test_not_a_number_is_not_private() -> None:
    line = VerticalLine(order=1.0, spacing=0.1, count=64)
    k = np.full(64, complex("nan"))
    k[0] = 0.0
    curve = contour_integral.build_curve(k, np.zeros(64), line, 1e-3)
    assert curve.log_delta(0.0) > math.log(0.05)
    k[0] = complex("nan")
    assert contour_integral.build_curve(k, np.zeros(64), line, 1e-3).log_delta(0.0) == math.inf


def test_a_sum_has_one_adjacency() -> None:
    with pytest.raises(Incomparable):
        ComposedLoss(members=(Gaussian(mu=1.0),), adjacency=REPLACE)


def test_both_directions_are_used() -> None:
    """With a tiny rate and delta near its total variation, removing is worse; never less than either."""
    loss = SampledGaussian(sample_rate=0.3, noise_multiplier=2.0, steps=20)
    for direction in Direction:
        value = contour_integral.epsilon(loss.parts, direction, 1e-6, rounds=3).high
        assert loss.epsilon(1e-6) >= value * (1 - 5e-4)


@pytest.mark.parametrize("kind", [Pure, Laplace])
def test_a_billion_billion_tiny_losses_add_up(kind: type[Pure]) -> None:
    """0.0 was stated for them; the central limit is the Gaussian with mu = 1, at 4.377."""
    low, high = kind(epsilon_each=1e-9, times=10**18).epsilon_bounds(1e-5)
    assert low <= gaussian_epsilon(1.0, 1e-5) <= high <= 4.38
    half = kind(epsilon_each=1e-9, times=5 * 10**17)
    assert (half + half).epsilon(1e-5) == high


@pytest.mark.parametrize(("z", "e"), [(3.0, 1e-9), (2.0 + 40j, 1e-5), (5.0, 0.07), (1 + 9j, 0.4)])
def test_moments_of_tiny_losses_keep_their_digits(z: complex, e: float) -> None:
    with mpmath.workdps(60):
        x, big = mpmath.mpc(z), mpmath.mpf(e)
        response = mpmath.cosh((x + 0.5) * big) / mpmath.cosh(big / 2)
        laplace = (x + 1) * mpmath.exp(x * big) + x * mpmath.exp(-(x + 1) * big)
        exact = [complex(mpmath.log(response)), complex(mpmath.log(laplace / (2 * x + 1)))]
    for f, truth in zip((response_log_mgf, laplace_log_mgf), exact, strict=True):
        value, error = f(np.array([complex(z)]), e)
        assert abs(np.expm1(value[0] - truth)) <= error[0]  # whole turns do not matter
        assert error[0] <= 1e-13 * max(abs(truth), 0.01 if abs(z + 1) * e > 0.5 else 0.0)


def test_counts_do_not_wrap_round() -> None:
    steps = SampledGaussian(sample_rate=0.1, noise_multiplier=1.0, steps=2**40)
    with pytest.raises(InvalidArgument, match="steps must be"):
        steps.repeat(2**24 + 1)
    with pytest.raises(InvalidArgument, match="steps must be"):
        SampledGaussian(sample_rate=[0.1] * 40, noise_multiplier=1.0, steps=9 * 10**14)
    with pytest.raises(InvalidArgument, match="times must be"):
        Pure(epsilon_each=0.1, times=10**31)


@pytest.mark.slow
def test_lower_bounds_of_binned_schedules_and_of_zcdp() -> None:
    z = np.linspace(1.0, 1.5, 250)
    low, high = SampledGaussian(sample_rate=0.02, noise_multiplier=z).epsilon_bounds(1e-6)
    least = SampledGaussian(sample_rate=0.02, noise_multiplier=1.5, steps=250).epsilon(1e-6)
    assert least < low < high < 1.01 * low
    low, high = ZCDP(rho=0.5).epsilon_bounds(1e-5)
    assert low == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-6)
    assert low < high


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SampledGaussian, SampledLaplace])
@pytest.mark.parametrize(("rate", "steps"), [(0.1, 1), (0.1, 7), (1.0, 2)])
def test_zero_out_costs_what_add_remove_does(
    kind: type[SampledGaussian], rate: float, steps: int
) -> None:
    found = {
        adjacency: kind(
            sample_rate=rate, noise_multiplier=1.0, steps=steps, adjacency=adjacency
        ).epsilon_bounds(1e-5)
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT)
    }
    assert found[Adjacency.ADD_REMOVE] == found[Adjacency.ZERO_OUT]


def mean_loss(q: float, z: float, adjacency: Adjacency) -> float:
    """E[L] of one step by a fine sum: no composition of T steps costs much less than T times it."""
    x = np.linspace(-12.0 * z - 1.0, 12.0 * z + 1.0, 400_001)

    def law(q: float, move: float) -> np.ndarray:
        moved = np.exp(-0.5 * ((x - move) / z) ** 2)
        return ((1.0 - q) * np.exp(-0.5 * (x / z) ** 2) + q * moved) / (z * np.sqrt(2.0 * np.pi))

    p = law(q, 1.0)
    other = law(q, -1.0) if adjacency is Adjacency.REPLACE_ONE else law(0.0, 0.0)
    live = (p > 0.0) & (other > 0.0)
    return float(np.sum(p[live] * np.log(p[live] / other[live])) * (x[1] - x[0]))


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.1, 0.2, 10**8), (0.1, 0.2, 5 * 10**14)])
def test_absurd_trainings_have_an_answer(
    rate: float, noise: float, steps: int, adjacency: Adjacency
) -> None:
    """e^(smoothing / 8), and the masses of 10^14 steps, left the range of float64."""
    loss = SampledGaussian(
        sample_rate=rate, noise_multiplier=noise, steps=steps, adjacency=adjacency
    )
    low, high = loss.epsilon_bounds(1e-5)
    least = steps * mean_loss(rate, noise, adjacency)
    assert 0.99 * least <= high <= 1.5 * least and low <= high


@pytest.mark.parametrize(
    ("more", "steps", "noise", "adjacency", "delta"),
    [
        (SampledGaussian(sample_rate=0.19, noise_multiplier=6.6, steps=4, adjacency=REPLACE),
         1_096_466, 0.294, REPLACE, 2.4e-13),
        (Pure(epsilon_each=1.18).repeat(46), 334_792, 0.11, Adjacency.ADD_REMOVE, 1.3e-14),
    ],
)  # fmt: skip
def test_losses_that_leave_every_grid_have_an_answer(
    more: Any, steps: int, noise: float, adjacency: Adjacency, delta: float
) -> None:
    """e^step left the range of float64 (OverflowError), or all of a law's mass its grid."""
    full = SampledGaussian(
        sample_rate=1.0, noise_multiplier=noise, steps=steps, adjacency=adjacency
    )
    least = gaussian_epsilon((2.0 if adjacency is REPLACE else 1.0) * steps**0.5 / noise, delta)
    assert least <= compose([full, more]).epsilon(delta) <= 1.001 * least


@pytest.mark.slow
def test_whatever_is_asked_is_answered() -> None:
    """Every kind of loss, alone and mixed, at settings drawn over many powers of ten."""
    rng = np.random.default_rng(0)

    def draw(low: float, high: float) -> float:
        return float(10.0 ** rng.uniform(math.log10(low), math.log10(high)))

    def part(adjacency: Adjacency) -> PrivacyLoss:
        q, z, steps = draw(1e-6, 1.0), draw(0.1, 100.0), round(draw(1.0, 1e7))
        kinds: list[PrivacyLoss] = [
            SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps, adjacency=adjacency),
            SampledGaussian(sample_rate=1.0, noise_multiplier=z, steps=steps, adjacency=adjacency),
            Laplace(epsilon_each=1.0 / z, adjacency=adjacency).repeat(steps),
            Pure(epsilon_each=1.0 / z, adjacency=adjacency).repeat(steps),
            Gaussian(mu=draw(1e-4, 100.0), adjacency=adjacency),
            FixedSizeGaussian(sample_rate=q, noise_multiplier=z, steps=steps)
            if adjacency is REPLACE
            else SampledLaplace(sample_rate=q, noise_multiplier=z, steps=steps),
        ]
        return kinds[rng.integers(len(kinds))]

    for _ in range(30):
        adjacency = (Adjacency.ADD_REMOVE, REPLACE)[rng.integers(2)]
        losses = [part(adjacency) for _ in range(rng.integers(1, 3))]
        delta = draw(1e-15, 0.5)
        low, high = compose(losses).epsilon_bounds(delta)
        assert 0.0 <= low <= high, (losses, delta)
        assert high >= max(loss.epsilon_bounds(delta)[0] for loss in losses) * (1.0 - 1e-6)


def test_absurd_trainings_on_fixed_batches_have_an_answer() -> None:
    loss = FixedSizeGaussian(sample_rate=0.1, noise_multiplier=0.3, steps=10**8)
    low, high = loss.epsilon_bounds(1e-5)
    assert low <= high and 1e8 < high < 1e9
