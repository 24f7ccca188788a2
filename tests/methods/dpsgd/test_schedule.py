"""Schedules: three forms, two ways to state the noise, and what an adaptive bound costs."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privet.accounting import Gaussian
from privet.accounting.closed_form import closed_form_claim
from privet.errors import InvalidArgument
from privet.methods.dpsgd import AdaptiveBound, Schedule, cosine, geometric, linear, private
from privet.noise import seeded
from privet.noise.grid import noise_scale


def test_three_forms_are_one():
    constant = Schedule(steps=4, sample_rate=0.1, noise_multiplier=2.0, clipping_bound=0.5)
    listed = Schedule(
        steps=4, sample_rate=[0.1] * 4, noise_multiplier=[2.0] * 4, clipping_bound=[0.5] * 4
    )
    function = Schedule(
        steps=4,
        sample_rate=lambda t: 0.1,
        noise_multiplier=lambda t: 2.0,
        clipping_bound=lambda t: 0.5,
    )
    for s in (listed, function):
        assert s.rates.tolist() == constant.rates.tolist()
        assert s.noise_multipliers.tolist() == constant.noise_multipliers.tolist()
        assert s.bounds.tolist() == constant.bounds.tolist()


def test_algorithm_1_on_equal_steps_is_algorithm_2():
    same = Schedule(steps=50, sample_rate=0.05, noise_multiplier=1.5)
    listed = Schedule(steps=50, sample_rate=np.full(50, 0.05), noise_multiplier=np.full(50, 1.5))
    assert same.loss() == listed.loss()
    claims = [closed_form_claim(s.loss(), 1e-5).epsilon for s in (same, listed)]
    assert claims[0] == claims[1]


def test_paper_value_of_the_claim():
    s = Schedule(steps=10**4, sample_rate=0.01, noise_multiplier=4.0)
    assert closed_form_claim(s.loss(), 1e-5).epsilon == pytest.approx(1.1355, abs=1e-4)


@pytest.mark.slow
@given(
    q=st.floats(0.01, 1.0), c=st.floats(0.1, 10.0), z=st.floats(0.5, 20.0), n=st.integers(10, 10**6)
)
def test_absolute_noise_round_trip(q, c, z, n):
    sigma = z * c / (q * n)
    s = Schedule.absolute(steps=1, sample_rate=q, sigma=sigma, clipping_bound=c, records=n)
    assert s.noise_multipliers[0] == pytest.approx(z, rel=1e-12)


@pytest.mark.parametrize("shape", [geometric, linear, cosine])
def test_shapes_meet_their_ends(shape):
    values = shape(3.0, 0.5, 20)
    assert len(values) == 20
    assert values[0] == pytest.approx(3.0) and values[-1] == pytest.approx(0.5)
    assert np.all(np.diff(values) <= 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("sample_rate", [1.0, 0.05])
def test_for_budget_meets_the_budget(sample_rate):
    s = Schedule.for_budget(epsilon=2.0, delta=1e-5, steps=40, sample_rate=sample_rate)
    assert 1.995 < s.loss().epsilon(1e-5) <= 2.0


def test_for_budget_leaves_room_for_an_extra_release():
    mean = Gaussian(mu=0.1)
    s = Schedule.for_budget(epsilon=1.0, delta=1e-5, steps=10, extra_loss=mean)
    assert 0.998 < (s.loss() + mean).epsilon(1e-5) <= 1.0


def test_noise_shape():
    s = Schedule.for_budget(epsilon=1.0, delta=1e-5, steps=5, noise_shape=geometric(2.0, 1.0, 5))
    assert s.noise_multipliers[0] / s.noise_multipliers[-1] == pytest.approx(2.0)
    assert 0.999 < s.loss().epsilon(1e-5) <= 1.0


@given(z=st.floats(0.3, 10.0), ratio=st.floats(0.6, 50.0))
def test_adaptive_bound_costs_what_the_schedule_says(z, ratio):
    """(gradient / noise, count / noise) of one example has norm at most 1 / z."""
    s = ratio * z
    bound = AdaptiveBound(initial=1.0, count_noise=s)
    zg = bound.gradient_multiplier(z, 100.0)
    joint = math.hypot(1.0 / zg, 0.5 / s)
    assert joint <= 1.0 / z and joint == pytest.approx(1.0 / z, rel=1e-9)


def test_adaptive_bound_refuses_too_little_noise():
    with pytest.raises(InvalidArgument, match="half the noise multiplier"):
        AdaptiveBound(initial=1.0, count_noise=0.4).gradient_multiplier(1.0, 100.0)


def test_adaptive_bound_moves_towards_the_quantile():
    rule = AdaptiveBound(initial=1.0, quantile=0.5, learning_rate=0.2)
    assert rule.next(1.0, 50.0, 100.0) < 1.0  # nobody was clipped
    assert rule.next(1.0, -50.0, 100.0) > 1.0  # everybody was
    assert rule.next(1.0, 0.0, 100.0) == 1.0


@given(c=st.floats(1e-3, 1e3), z=st.floats(0.1, 100.0), d=st.integers(1, 10**7))
def test_noise_scale_covers_the_grid(c, z, d):
    scale = noise_scale(sensitivity=c, noise_multiplier=z, dimension=d)
    assert z * c <= scale <= z * c * (1 + 1e-7 * z * math.sqrt(d) + 1e-6)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_noise_scale_is_computed_in_float64(kind):
    exact = noise_scale(sensitivity=float(kind(1 / 3)), noise_multiplier=1.5, dimension=10**6)
    given = noise_scale(sensitivity=kind(1 / 3), noise_multiplier=kind(1.5), dimension=10**6)
    assert given == exact and type(given) is float


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 0},
        {"sample_rate": 0.0},
        {"sample_rate": 1.1},
        {"noise_multiplier": 0.0},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": float("nan")},
        {"clipping_bound": 0.0},
        {"sample_rate": [0.1, 0.1]},
    ],
)
def test_bad_schedules(bad):
    with pytest.raises(InvalidArgument):
        Schedule(**{"steps": 3, "sample_rate": 0.1, "noise_multiplier": 1.0, **bad})


def test_a_budget_carries_its_delta_to_the_loop() -> None:
    """`Schedule.for_budget(delta=...)`, and `private` asked for delta again."""
    schedule = Schedule.for_budget(epsilon=2.0, delta=1e-6, steps=3, sample_rate=0.2)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(100, 2), torch.randn(100, 1)

    def losses(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return (model(batch.x) - batch.y).square().mean(1)

    with private(model, optimizer, data, schedule, losses=losses, rng=seeded(0)) as training:
        assert sum(1 for _ in training) == 3
    assert training.guarantee.delta == 1e-6 and training.epsilon_spent <= 2.0
    bare = Schedule(steps=3, sample_rate=0.2, noise_multiplier=2.0)
    with pytest.raises(InvalidArgument, match=r"Schedule.for_budget\(delta"):
        private(model, optimizer, data, bare, losses=losses, rng=seeded(0))
