"""Sampled releases: closed forms for one step, an integral for two, dp-accounting for many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting import (
    Direction,
    FixedSizeGaussian,
    Gaussian,
    SampledGaussian,
    SampledLaplace,
    from_dict,
    gaussian_epsilon,
)
from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency
from tests.reference.inversion import epsilon_of_many
from tests.reference.two_steps import epsilon_of_two

REPLACE = Adjacency.REPLACE_ONE


def fine_pld(q: float, z: float, steps: int, interval: float) -> Any:
    """dp-accounting's distribution of many steps."""
    reason = "needs the extra `peers`"
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason=reason)
    one = pld.from_gaussian_mechanism(
        z, sampling_prob=q, value_discretization_interval=interval, use_connect_dots=True
    )
    return one.self_compose(steps)


@pytest.mark.slow
@pytest.mark.parametrize("q", [1e-4, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("z", [0.5, 1.0, 5.0])
def test_one_step_is_the_profile(q: float, z: float) -> None:
    """H_alpha of the mixture by a fine sum over the real line."""
    x = np.linspace(-12 * z, 12 * z + 1, 400_001)
    h = x[1] - x[0]
    base = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
    mixed = (1 - q) * base + q * np.exp(-0.5 * ((x - 1) / z) ** 2) / (z * math.sqrt(2 * math.pi))
    step = SampledGaussian(sample_rate=q, noise_multiplier=z)
    for epsilon in (-0.5, 0.0, 0.01, 0.7):
        for direction, p, other in (
            (Direction.REMOVE, mixed, base),
            (Direction.ADD, base, mixed),
        ):
            exact = h * np.sum(np.maximum(p - math.exp(epsilon) * other, 0.0))
            profile = step.profile(np.array([epsilon]), direction)
            assert profile is not None
            assert profile[0] == pytest.approx(exact, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "z", "delta"),
    [(0.01, 1.0, 1e-5), (0.1, 0.6, 1e-6), (0.5, 2.0, 1e-9), (1e-3, 0.5, 1e-5), (1e-4, 0.8, 1e-8)],
)
def test_two_steps_against_an_integral(q: float, z: float, delta: float) -> None:
    truth = epsilon_of_two(q, z, delta)
    ours = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=2).epsilon(delta)
    assert truth * (1 - 1e-7) <= ours <= truth * 1.002 + (5e-4 if truth < 0.02 else 0.0)


@pytest.mark.parametrize(
    ("q", "z", "steps", "delta", "known"),
    [
        (0.01, 1.0, 10_000, 1e-6, 6.907),
        (0.01, 1.0, 100_000, 1e-6, 27.67),
        (0.01, 1.0, 1_000_000, 1e-6, 145.5),
        (0.001, 0.8, 1_000_000, 1e-6, 10.683),
        (0.0001, 1.0, 1_000_000, 1e-7, 0.5980),
    ],
)
def test_reference_values(q: float, z: float, steps: int, delta: float, known: float) -> None:
    """The figures of the prototype (notes/contour-accounting.md), to their printed digits."""
    ours = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps).epsilon(delta)
    assert ours == pytest.approx(known, rel=7e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "z", "steps", "interval"),
    [(0.02, 0.7, 100, 2e-4), (0.1, 2.0, 1000, 1e-4), (0.5, 4.0, 50, 1e-4), (0.002, 1.0, 300, 1e-5)],
)
def test_many_steps_against_dp_accounting(q: float, z: float, steps: int, interval: float) -> None:
    peer = fine_pld(q, z, steps, interval)
    loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps)
    for delta in (1e-3, 1e-5, 1e-8):
        theirs, ours = peer.get_epsilon_for_delta(delta), loss.epsilon(delta)
        assert theirs * (1 - 2e-4) - 1e-6 <= ours <= theirs * 1.002 + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "z", "steps", "delta"),
    [(0.01, 1.0, 10_000, 1e-6), (0.6217, 36.9, 389_756, 6.5e-8), (0.0005, 19.7, 966_861, 2.2e-12)],
)
def test_many_steps_against_plain_inversion(q: float, z: float, steps: int, delta: float) -> None:
    truth = max(epsilon_of_many(q, z, steps, delta, direction) for direction in Direction)
    ours = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps).epsilon(delta)
    assert truth <= ours <= truth * 1.0005


def test_full_rate_is_the_exact_gaussian() -> None:
    sampled = SampledGaussian(sample_rate=1.0, noise_multiplier=10.0, steps=100).epsilon(1e-5)
    exact = gaussian_epsilon(1.0, 1e-5)
    assert exact <= sampled <= exact * 1.001


def test_rate_zero_is_free_and_does_not_disturb() -> None:
    nothing = SampledGaussian(sample_rate=0.0, noise_multiplier=1.0, steps=5)
    assert nothing.epsilon(1e-5) == 0.0
    some = SampledGaussian(sample_rate=0.1, noise_multiplier=1.0, steps=7)
    assert (some + nothing).epsilon(1e-5) == some.epsilon(1e-5)


def test_equal_steps_may_be_written_in_any_way() -> None:
    together = SampledGaussian(sample_rate=0.05, noise_multiplier=1.2, steps=30)
    apart = SampledGaussian(sample_rate=[0.05] * 30, noise_multiplier=[1.2] * 30)
    added = together.repeat(1) + SampledGaussian(sample_rate=0.05, noise_multiplier=1.2, steps=1)
    assert together == apart
    assert together.epsilon(1e-6) == apart.epsilon(1e-6)
    assert added.epsilon(1e-6) > together.epsilon(1e-6)
    assert from_dict(added.to_dict()).epsilon(1e-6) == added.epsilon(1e-6)


@pytest.mark.slow
@given(st.floats(0.001, 1.0), st.floats(0.6, 8.0), st.integers(2, 2000), st.floats(1e-9, 1e-3))
@settings(max_examples=15, deadline=None)
def test_monotone_in_everything(q: float, z: float, steps: int, delta: float) -> None:
    def at(q: float = q, z: float = z, steps: int = steps, delta: float = delta) -> float:
        return SampledGaussian(sample_rate=q, noise_multiplier=z, steps=steps).epsilon(delta)

    here = at()
    slack = 4e-4 * here + 2e-4  # the accountant's own looseness
    assert at(q=0.8 * q) <= here + slack
    assert at(z=1.2 * z) <= here + slack
    assert at(steps=2 * steps) >= here - slack
    assert at(delta=0.5 * delta) >= here - slack


@pytest.mark.parametrize("loss", [SampledGaussian, SampledLaplace])
def test_delta_undoes_epsilon(loss: type[SampledGaussian]) -> None:
    steps = loss(sample_rate=0.02, noise_multiplier=1.1, steps=400)
    epsilon = steps.epsilon(1e-5)
    assert 0.99e-5 <= steps.delta(epsilon) <= 1.0e-5 * (1 + 1e-9)


def test_replace_one_pair_is_the_worst_of_random_pairs() -> None:
    """H_alpha for random g, g' in the unit disc never passes the pair (1, -1) (Monte-Carlo-free: a
    2-D sum)."""
    rng = np.random.default_rng(0)
    q, z = 0.3, 0.9
    t = np.linspace(-6, 6, 301) * z
    h2 = (t[1] - t[0]) ** 2
    x, y = np.meshgrid(t, t)

    def law(g: np.ndarray) -> np.ndarray:
        scale = 2 * math.pi * z * z
        with_it = np.exp(-0.5 * ((x - g[0]) ** 2 + (y - g[1]) ** 2) / z**2) / scale
        return (1 - q) * np.exp(-0.5 * (x**2 + y**2) / z**2) / scale + q * with_it

    loss = SampledGaussian(sample_rate=q, noise_multiplier=z, adjacency=REPLACE)
    for _ in range(25):
        directions = rng.normal(size=(2, 2))
        unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        g = unit * rng.uniform(0, 1, size=(2, 1)) ** 0.25
        p, other = law(g[0]), law(g[1])
        for epsilon in (0.0, 0.3, 0.8):
            found = h2 * np.sum(np.maximum(p - math.exp(epsilon) * other, 0.0))
            assert found <= loss.delta(epsilon) + 1e-6


def test_replace_one_costs_more_than_add_remove_and_less_than_twice_the_group() -> None:
    settings = {"sample_rate": 0.05, "noise_multiplier": 1.0, "steps": 200}
    add = SampledGaussian(**settings)
    replace = SampledGaussian(**settings, adjacency=REPLACE)
    assert add.epsilon(1e-6) < replace.epsilon(1e-6)
    assert replace.epsilon(1e-6) < add.guarantee(1e-9).as_replace_one().epsilon


def test_fixed_size_batches() -> None:
    """At rate 1 it is the Gaussian at sensitivity 2; below, more costly than Poisson (Lebeda et al.
    2024)."""
    full = FixedSizeGaussian(sample_rate=1.0, noise_multiplier=10.0, steps=25)
    exact = Gaussian(mu=1.0, adjacency=REPLACE).epsilon(1e-5)
    assert exact <= full.epsilon(1e-5) <= exact * 1.001
    fixed = FixedSizeGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=1000)
    poisson = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=1000, adjacency=REPLACE)
    assert fixed.epsilon(1e-5) > 3 * poisson.epsilon(1e-5)


def test_fixed_size_profile_dominates_a_small_example() -> None:
    """n = 3 records in {-1, 1}, batches of 1: every pair of neighbours, by summation over batches.
    n = 3 records in {-1, 1}, batches of 1: every pair of neighbours, by summation over batches."""
    z = 1.3
    x = np.linspace(-15, 15, 60_001)
    h = x[1] - x[0]

    def law(data: tuple[float, ...]) -> np.ndarray:
        normal = [np.exp(-0.5 * ((x - v) / z) ** 2) for v in data]
        return np.mean(normal, axis=0) / (z * math.sqrt(2 * math.pi))

    loss = FixedSizeGaussian(sample_rate=1 / 3, noise_multiplier=z)
    worst = 0.0
    for rest in [(-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (0.0, 0.0)]:
        p, other = law((*rest, 1.0)), law((*rest, -1.0))
        for epsilon in (0.0, 0.2, 0.5):
            found = max(
                h * np.sum(np.maximum(a - math.exp(epsilon) * b, 0.0))
                for a, b in ((p, other), (other, p))
            )
            assert found <= loss.delta(epsilon) + 1e-9
            worst = max(worst, found / loss.delta(epsilon))
    assert worst > 0.999  # it is attained


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample_rate": 1.5, "noise_multiplier": 1.0}, "sample_rate must be"),
        ({"sample_rate": 0.1, "noise_multiplier": -1.0}, "noise_multiplier must be"),
        ({"sample_rate": 0.1, "noise_multiplier": float("nan")}, "noise_multiplier must be"),
        ({"sample_rate": float("nan"), "noise_multiplier": 1.0}, "sample_rate must be"),
        ({"sample_rate": 0.1, "noise_multiplier": 1.0, "steps": 0}, "steps must be"),
        ({"sample_rate": 0.1, "noise_multiplier": 1.0, "steps": 1.5}, "steps must be"),
        ({"sample_rate": [], "noise_multiplier": []}, "at least one step"),
        ({"sample_rate": [0.1, 0.2], "noise_multiplier": [1.0] * 3}, "equal length"),
        ({"sample_rate": [[0.1]], "noise_multiplier": 1.0}, "one-dimensional"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        SampledGaussian(**settings)  # type: ignore[arg-type]


def test_adjacencies_do_not_mix() -> None:
    with pytest.raises(Incomparable, match="adjacency"):
        Gaussian(mu=1.0) + Gaussian(mu=1.0, adjacency=REPLACE)
