"""Calibration never passes its target, and comes close to it."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting import Gaussian, SampledGaussian, calibration, gaussian_mu
from privet.errors import InvalidArgument, Unattainable
from privet.guarantee import Adjacency


@pytest.mark.slow
@settings(max_examples=20)
@given(
    epsilon=st.floats(0.05, 20.0),
    delta=st.floats(1e-9, 1e-3),
    q=st.floats(1e-3, 1.0),
    steps=st.integers(1, 5000),
)
def test_noise_meets_the_target_closely(epsilon: float, delta: float, q: float, steps: int) -> None:
    found = calibration.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=q, steps=steps)
    again = SampledGaussian(sample_rate=q, noise_multiplier=found.value, steps=steps).epsilon(delta)
    assert again == found.epsilon
    assert 0.998 * epsilon <= found.epsilon <= epsilon


def test_without_sampling_it_is_the_exact_gaussian() -> None:
    for epsilon, delta, steps in [(1.0, 1e-5, 1), (8.0, 1e-3, 80), (0.1, 1e-8, 1000)]:
        found = calibration.noise_multiplier(
            epsilon=epsilon, delta=delta, sample_rate=1.0, steps=steps
        )
        best = math.sqrt(steps) / gaussian_mu(epsilon, delta)
        assert best * (1 - 1e-9) <= found.value <= best * 1.002


@pytest.mark.slow
def test_round_trip_between_the_three_settings() -> None:
    target = {"epsilon": 2.0, "delta": 1e-6}
    noise = calibration.noise_multiplier(**target, sample_rate=0.02, steps=500)
    steps = calibration.steps(**target, sample_rate=0.02, noise_multiplier=noise.value)
    rate = calibration.sample_rate(**target, noise_multiplier=noise.value, steps=500)
    assert 500 <= steps.value <= 502
    assert rate.value == pytest.approx(0.02, rel=1e-3)
    assert steps.epsilon <= 2.0
    assert rate.epsilon <= 2.0


def test_one_more_step_would_be_too_many() -> None:
    found = calibration.steps(epsilon=1.0, delta=1e-5, sample_rate=0.05, noise_multiplier=2.0)
    more = SampledGaussian(sample_rate=0.05, noise_multiplier=2.0, steps=int(found.value) + 1)
    assert found.epsilon <= 1.0 < more.epsilon(1e-5)


def test_a_rate_of_one_may_be_affordable() -> None:
    found = calibration.sample_rate(epsilon=5.0, delta=1e-5, noise_multiplier=10.0, steps=3)
    assert found.value == 1.0


def test_a_schedule_keeps_its_form() -> None:
    plan = SampledGaussian(
        sample_rate=[0.01, 0.02, 0.03], noise_multiplier=[1.0, 1.5, 3.0], steps=[100, 200, 300]
    )
    found = calibration.scale_schedule(epsilon=1.0, delta=1e-5, schedule=plan)
    assert 0.998 <= found.epsilon <= 1.0
    assert isinstance(found.loss, SampledGaussian)
    assert np.allclose(found.loss.groups[1], found.value * plan.groups[1])
    same = calibration.scale_schedule(epsilon=1.0, delta=1e-5, schedule=found.loss)
    assert same.value == pytest.approx(1.0, rel=1e-3)


def test_equal_steps_as_a_schedule() -> None:
    plan = SampledGaussian(sample_rate=[0.01] * 4, noise_multiplier=[1.0] * 4, steps=[250] * 4)
    factor = calibration.scale_schedule(epsilon=1.0, delta=1e-5, schedule=plan)
    plain = calibration.noise_multiplier(epsilon=1.0, delta=1e-5, sample_rate=0.01, steps=1000)
    assert factor.value == pytest.approx(plain.value, rel=1e-3)


@pytest.mark.slow
def test_ten_thousand_distinct_steps() -> None:
    """Under 5 s on an idle machine; the limit here allows for a busy one."""
    rng = np.random.default_rng(5)
    plan = SampledGaussian(
        sample_rate=rng.uniform(0.001, 0.02, 10_000), noise_multiplier=rng.uniform(0.7, 2.0, 10_000)
    )
    start = time.process_time()
    found = calibration.scale_schedule(epsilon=1.0, delta=1e-5, schedule=plan)
    assert time.process_time() - start < 60.0
    assert 0.998 <= found.epsilon <= 1.0


def test_replace_one_needs_more_noise() -> None:
    target = {"epsilon": 1.0, "delta": 1e-5, "sample_rate": 0.02, "steps": 100}
    add = calibration.noise_multiplier(**target)
    swap = calibration.noise_multiplier(**target, adjacency=Adjacency.REPLACE_ONE)
    assert swap.value > add.value
    assert swap.epsilon <= 1.0


def test_any_loss_can_be_searched() -> None:
    found = calibration.search(
        lambda z: Gaussian(mu=1.0 / z), epsilon=8.0, delta=1e-3, start=50.0, limits=(1e-2, 1e2)
    )
    assert found.value == pytest.approx(1.0 / 2.0833, rel=1e-3)
    with pytest.raises(Unattainable, match="out of reach"):
        calibration.search(
            lambda z: Gaussian(mu=1.0 / z), epsilon=1e-3, delta=1e-9, start=1.0, limits=(0.1, 10.0)
        )


def test_what_cannot_be_says_what_would_do() -> None:
    with pytest.raises(Unattainable, match=r"a noise multiplier of [\d.]+ allows one"):
        calibration.steps(epsilon=0.1, delta=1e-5, sample_rate=0.5, noise_multiplier=0.5)
    with pytest.raises(Unattainable, match="take fewer steps"):
        calibration.noise_multiplier(epsilon=1e-6, delta=1e-12, sample_rate=1.0, steps=10**9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be a number in"),
        ({"delta": 1.0}, "delta must be a number in"),
        ({"sample_rate": 0.0}, "sample_rate must be"),
        ({"sample_rate": 1.1}, "sample_rate must be"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"steps": 1.5}, "steps must be a whole number"),
    ],
)
def test_bad_input(change: dict[str, float], message: str) -> None:
    good = {"epsilon": 1.0, "delta": 1e-5, "sample_rate": 0.1, "steps": 10}
    with pytest.raises(InvalidArgument, match=message):
        calibration.noise_multiplier(**(good | change))


def test_bad_schedules() -> None:
    with pytest.raises(InvalidArgument, match="schedule must be"):
        calibration.scale_schedule(epsilon=1.0, delta=1e-5, schedule=Gaussian(mu=1.0))  # type: ignore[arg-type]
    idle = SampledGaussian(sample_rate=0.0, noise_multiplier=1.0)
    with pytest.raises(InvalidArgument, match="reads the data"):
        calibration.scale_schedule(epsilon=1.0, delta=1e-5, schedule=idle)
    for noise in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidArgument, match="noise_multiplier must be"):
            calibration.steps(epsilon=1.0, delta=1e-5, sample_rate=0.1, noise_multiplier=noise)
