"""Moments and Renyi accountants: against quadrature, against peers, against the exact one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting import ApproximateDP, Direction, Gaussian, Pure, SampledGaussian, compose
from privet.accounting.renyi_and_moments_accountants import (
    ORDERS,
    log_moment,
    moments_epsilon,
    renyi_epsilon,
)
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.methods.pate.published_noise import concentrated_epsilon, concentrated_noise


def test_the_published_value() -> None:
    loss = SampledGaussian(sample_rate=0.01, noise_multiplier=4.0, steps=10_000)
    assert moments_epsilon(loss, 1e-5) == pytest.approx(1.26, abs=5e-3)


@settings(max_examples=30)
@given(
    q=st.floats(1e-6, 1.0),
    z=st.floats(0.4, 30.0),
    order=st.integers(1, 32),
)
def test_binomial_sum_is_the_integral_and_the_worse_direction(
    q: float, z: float, order: int
) -> None:
    part = SampledGaussian(sample_rate=q, noise_multiplier=z)
    t = np.array([float(order)])
    binomial = float(log_moment(np.array([q]), np.array([z]), order)[0])
    remove = float(part.log_mgf(t, Direction.REMOVE)[0])
    add = float(part.log_mgf(t, Direction.ADD)[0])
    assert binomial == pytest.approx(remove, rel=1e-8, abs=1e-12)
    assert add <= binomial + 1e-12


def test_log_moment_keeps_its_digits_for_a_tiny_rate() -> None:
    q, z = 1e-9, 1.0
    value = float(log_moment(np.array([q]), np.array([z]), 1)[0])
    assert value == pytest.approx(q * q * math.expm1(1.0), rel=1e-12)


@pytest.mark.parametrize(("q", "z", "steps"), [(0.01, 4.0, 10_000), (0.1, 1.0, 50), (1.0, 3.0, 7)])
def test_moments_accountant_by_hand(q: float, z: float, steps: int) -> None:
    """Abadi et al.'s definition, summed without any care for rounding."""
    delta = 1e-5
    best = math.inf
    for t in range(1, 33):
        n = t + 1
        terms = [
            math.comb(n, k) * (1 - q) ** (n - k) * q**k * math.exp(k * (k - 1) / (2 * z * z))
            for k in range(n + 1)
        ]
        best = min(best, (steps * math.log(math.fsum(terms)) - math.log(delta)) / t)
    loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps)
    assert moments_epsilon(loss, delta) == pytest.approx(best, rel=1e-9)


def test_unequal_steps_that_are_equal_are_the_equal_ones() -> None:
    one = SampledGaussian(sample_rate=0.02, noise_multiplier=1.1, steps=90)
    many = compose(
        [SampledGaussian(sample_rate=0.02, noise_multiplier=1.1, steps=30) for _ in range(3)]
    )
    assert moments_epsilon(many, 1e-6) == pytest.approx(moments_epsilon(one, 1e-6), rel=1e-12)
    assert renyi_epsilon(many, 1e-6) == pytest.approx(renyi_epsilon(one, 1e-6), rel=1e-9)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    q=st.floats(1e-3, 1.0),
    z=st.floats(0.5, 10.0),
    steps=st.integers(1, 5000),
    delta=st.floats(1e-10, 1e-3),
)
def test_exact_is_below_renyi_is_below_moments(
    q: float, z: float, steps: int, delta: float
) -> None:
    loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps)
    exact, rdp, moments = (
        loss.epsilon(delta),
        renyi_epsilon(loss, delta),
        moments_epsilon(loss, delta),
    )
    assert exact <= rdp * (1 + 1e-9) + 1e-12
    assert rdp <= moments * (1 + 1e-3) + 1e-9


def test_renyi_agrees_with_a_peer() -> None:
    dp_event = pytest.importorskip("dp_accounting.dp_event", reason="needs the extra `peers`")
    from dp_accounting.rdp import RdpAccountant

    for q, z, steps, delta in [
        (0.01, 1.0, 1000, 1e-5),
        (0.1, 2.0, 100, 1e-6),
        (1.0, 5.0, 10, 1e-5),
    ]:
        step = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z))
        theirs = RdpAccountant().compose(step, steps).get_epsilon(delta)
        ours = renyi_epsilon(SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps), delta)
        assert 0.97 * theirs <= ours <= theirs * (1 + 1e-3)


def test_pate_closed_form() -> None:
    sigma = concentrated_noise(sensitivity=2 / 8, releases=80, epsilon=8.0, delta=1e-3)
    assert sigma == pytest.approx(1.2826, abs=5e-5)
    mu = 2.0 * math.sqrt(80.0) / (8.0 * sigma)
    assert concentrated_epsilon(mu, 1e-3) == pytest.approx(8.0, rel=1e-12)
    assert Gaussian(mu=mu).epsilon(1e-3) == pytest.approx(6.34, abs=5e-3)
    # the PCA form: sqrt(N d) in place of sqrt(4 N)
    pca = concentrated_noise(sensitivity=math.sqrt(50) / 8, releases=80, epsilon=8.0, delta=1e-3)
    log_inverse = math.log(1e3)
    printed = math.sqrt(80 * 50) * (math.sqrt(log_inverse + 8) + math.sqrt(log_inverse))
    assert pca == pytest.approx(printed / (math.sqrt(2) * 8 * 8.0), rel=1e-12)


def test_concentrated_is_the_best_real_order_of_the_moments_bound() -> None:
    mu, delta = 0.3, 1e-6
    t = np.geomspace(0.1, 1e4, 200_000)
    best = np.min((mu * mu * t * (t + 1) / 2 - math.log(delta)) / t)
    assert concentrated_epsilon(mu, delta) == pytest.approx(float(best), rel=1e-6)
    assert moments_epsilon(Gaussian(mu=mu), delta) >= concentrated_epsilon(mu, delta)


def test_other_parts_and_nothing() -> None:
    assert moments_epsilon(compose([]), 1e-5) == renyi_epsilon(compose([]), 1e-5) == 0.0
    failing = ApproximateDP(epsilon_each=0.1, delta_each=1e-3)
    assert moments_epsilon(failing, 1e-5) == renyi_epsilon(failing, 1e-5) == math.inf
    mixed = Gaussian(mu=0.2) + Pure(epsilon_each=0.1)
    assert mixed.epsilon(1e-5) <= renyi_epsilon(mixed, 1e-5) <= moments_epsilon(mixed, 1e-5)
    swap = SampledGaussian(
        sample_rate=0.01, noise_multiplier=1.0, steps=100, adjacency=Adjacency.REPLACE_ONE
    )
    assert swap.epsilon(1e-5) <= renyi_epsilon(swap, 1e-5) <= moments_epsilon(swap, 1e-5) * 1.001


def test_orders_are_the_papers() -> None:
    assert ORDERS.tolist() == list(range(1, 33))


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_bad_delta(delta: float) -> None:
    loss = Gaussian(mu=1.0)
    for call in (moments_epsilon, renyi_epsilon):
        with pytest.raises(InvalidArgument, match="delta must be"):
            call(loss, delta)
    with pytest.raises(InvalidArgument, match="delta must be"):
        concentrated_epsilon(1.0, delta)
