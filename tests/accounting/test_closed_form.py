"""The paper's closed form: right formulas, marked as what they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.accounting import Gaussian, Pure, SampledGaussian
from privet.accounting.calibration import noise_multiplier_from_sigma
from privet.accounting.closed_form import (
    closed_form_claim,
    closed_form_epsilon,
    closed_form_ratio,
    effective_ratio,
)
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Backing, Standing

DELTAS = st.floats(-300, -0.1).map(lambda x: 10.0**x)


def test_the_papers_own_example() -> None:
    loss = SampledGaussian(sample_rate=0.01, noise_multiplier=4.0, steps=10_000)
    assert closed_form_claim(loss, 1e-5).epsilon == pytest.approx(1.1355, abs=5e-5)


@given(epsilon=st.floats(1e-8, 1e6), delta=DELTAS)
def test_g_undoes_f(epsilon: float, delta: float) -> None:
    assert closed_form_epsilon(closed_form_ratio(epsilon, delta), delta) == pytest.approx(
        epsilon, rel=1e-11
    )


@given(u=st.floats(1e-8, 1e3), delta=DELTAS)
def test_f_undoes_g(u: float, delta: float) -> None:
    assert closed_form_ratio(closed_form_epsilon(u, delta), delta) == pytest.approx(u, rel=1e-11)


def test_equation_8_as_printed_is_the_reciprocal() -> None:
    from scipy.special import erfcinv

    epsilon, delta = 2.0, 1e-5
    c = float(erfcinv(delta))
    printed = (math.sqrt(c * c + epsilon) + c) / math.sqrt(2.0) / epsilon
    assert closed_form_ratio(epsilon, delta) == pytest.approx(1.0 / printed, rel=1e-12)


@pytest.mark.slow
@given(mu=st.floats(1e-4, 50.0), delta=st.floats(1e-12, 0.4))
def test_without_sampling_it_is_an_upper_bound(mu: float, delta: float) -> None:
    """Its tail has mass delta / 2, and erfcinv(2 delta) already suffices."""
    exact = Gaussian(mu=mu).epsilon(delta)
    assert closed_form_epsilon(mu, delta) >= exact
    assert closed_form_epsilon(mu, min(2.0 * delta, 0.999)) >= exact * (1 - 1e-12)


def test_unequal_steps_that_are_equal_are_the_equal_ones() -> None:
    one = SampledGaussian(sample_rate=0.02, noise_multiplier=1.3, steps=60)
    many = SampledGaussian(sample_rate=[0.02] * 3, noise_multiplier=[1.3] * 3, steps=[10, 20, 30])
    assert closed_form_claim(many, 1e-6) == closed_form_claim(one, 1e-6)
    uneven = SampledGaussian(sample_rate=[0.3, 0.4], noise_multiplier=[1.0, 1.0])
    assert effective_ratio(uneven) == pytest.approx(0.5)
    assert effective_ratio(uneven + Gaussian(mu=1.2)) == pytest.approx(1.3)


def test_absolute_noise_becomes_a_multiplier() -> None:
    """z = sigma q N / C, and the claim is the paper's equation 3 in its own symbols."""
    sigma, q, n, clip, steps = 0.02, 0.01, 60_000, 3.0, 1000
    z = noise_multiplier_from_sigma(sigma=sigma, sample_rate=q, records=n, clip=clip)
    big_delta = clip / (q * n)
    u = q * big_delta * math.sqrt(steps) / sigma
    loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps)
    assert effective_ratio(loss) == pytest.approx(u, rel=1e-12)


def test_its_standing_follows_the_sampling() -> None:
    sampled = closed_form_claim(SampledGaussian(sample_rate=0.5, noise_multiplier=1.0), 1e-5)
    assert sampled.standing is Standing.CLAIMED
    assert [a.backing for a in sampled.premises] == [Backing.ASSUMED]
    full = closed_form_claim(SampledGaussian(sample_rate=1.0, noise_multiplier=1.0), 1e-5)
    assert full.standing is Standing.PROVED
    assert [a.backing for a in full.premises] == [Backing.ENFORCED]


def test_replace_one_doubles_the_sensitivity_and_says_so() -> None:
    add = SampledGaussian(sample_rate=0.1, noise_multiplier=4.0)
    swap = SampledGaussian(sample_rate=0.1, noise_multiplier=4.0, adjacency=Adjacency.REPLACE_ONE)
    assert effective_ratio(swap) == pytest.approx(2.0 * effective_ratio(add))
    assert "replace-one" in closed_form_claim(swap, 1e-5).premises[-1].text


def test_it_under_reports_without_limit() -> None:
    """The counter-example of docs/theory/closed_form.md: one step, the event x > 1."""
    from scipy.special import ndtr

    q, z, delta = 0.01, 0.25, 1e-5
    claimed = closed_form_epsilon(q / z, delta)
    with_record = (1 - q) * ndtr(-1 / z) + q * 0.5
    without = ndtr(-1 / z)
    assert with_record - math.exp(claimed) * without > 100 * delta
    exact = [
        SampledGaussian(sample_rate=x, noise_multiplier=x / 0.04).epsilon(delta)
        for x in (0.01, 0.005, 0.0025)
    ]
    assert np.all(np.diff(exact) > 0)  # while the claim stays where it is
    assert exact[-1] > 100 * claimed


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 1.5, math.nan, "x"])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(InvalidArgument, match="delta must be a number in"):
        closed_form_epsilon(1.0, delta)
    with pytest.raises(InvalidArgument, match="delta must be a number in"):
        closed_form_ratio(1.0, delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilon(epsilon: float) -> None:
    with pytest.raises(InvalidArgument, match="epsilon must be"):
        closed_form_ratio(epsilon, 1e-5)


def test_bad_sigma_and_rate() -> None:
    for sigma in (-1.0, 0.0, math.nan):
        with pytest.raises(InvalidArgument, match="sigma must be"):
            noise_multiplier_from_sigma(sigma=sigma, sample_rate=0.1, records=10, clip=1.0)
    for rate in (0.0, 1.5, math.nan):
        with pytest.raises(InvalidArgument, match="sample_rate must be"):
            noise_multiplier_from_sigma(sigma=1.0, sample_rate=rate, records=10, clip=1.0)


def test_other_losses_have_no_closed_form() -> None:
    with pytest.raises(InvalidArgument, match="Gaussian releases"):
        closed_form_claim(Pure(epsilon_each=0.1), 1e-5)
