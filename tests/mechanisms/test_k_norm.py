"""K-norm noise: its law in every dimension, its price, and that it pays before it draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.mechanisms import KNormMechanism, LaplaceMechanism
from privet.noise import seeded
from privet.sensitivity import clip_l2


def draws(dimension: int, n: int, scale: float = 2.0) -> np.ndarray:
    zero = clip_l2(np.zeros((1, dimension)), 1.0).sum()
    rng = seeded(5)
    return np.array([KNormMechanism(scale=scale).release(zero, rng=rng.child(i)) for i in range(n)])


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 7])
def test_radius_is_gamma_and_direction_uniform(dimension: int) -> None:
    x = draws(dimension, 3000)
    radius = np.linalg.norm(x, axis=1)
    assert stats.kstest(radius, stats.gamma(dimension, scale=2.0).cdf).pvalue > 1e-4
    # one coordinate of a uniform direction: its square is Beta(1/2, (D-1)/2)
    if dimension > 1:
        share = (x[:, 0] / radius) ** 2
        assert stats.kstest(share, stats.beta(0.5, (dimension - 1) / 2).cdf).pvalue > 1e-4
    assert abs(x.mean()) < 5 * x.std() / math.sqrt(x.size)
    expected = KNormMechanism(scale=2.0).standard_deviation(dimension)
    assert x.std() == pytest.approx(expected, rel=0.06)


@pytest.mark.slow
def test_in_one_dimension_it_is_laplace() -> None:
    x = draws(1, 4000)[:, 0]
    assert stats.kstest(x, stats.laplace(scale=2.0).cdf).pvalue > 1e-4
    assert (
        KNormMechanism.for_budget(1.0, epsilon=0.5).scale
        == LaplaceMechanism.for_budget(1.0, epsilon=0.5).scale
    )


def test_the_log_density_ratio_never_passes_epsilon() -> None:
    rng = np.random.default_rng(0)
    mechanism = KNormMechanism(scale=3.0)
    epsilon = mechanism.loss(1.0, dimension=5).epsilon(0.0)
    x = rng.normal(size=(2000, 5)) * 10
    move = rng.normal(size=(2000, 5))
    move /= np.linalg.norm(move, axis=1, keepdims=True)
    ratio = (np.linalg.norm(x - move, axis=1) - np.linalg.norm(x, axis=1)) / 3.0
    assert np.abs(ratio).max() <= epsilon


def test_budget_round_trip_and_adjacency() -> None:
    total = clip_l2(np.ones((4, 6)), 1.0).sum()
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        found = KNormMechanism.for_budget(total, epsilon=0.7, adjacency=adjacency)
        loss = found.loss(total, adjacency=adjacency)
        assert 0.6999 < loss.epsilon(0.0) <= 0.7 and loss.adjacency is adjacency


def test_two_releases_from_one_source_have_two_noises() -> None:
    total, rng = clip_l2(np.ones((4, 6)), 1.0).sum(), seeded(0)
    one, two = (KNormMechanism(scale=1.0).release(total, rng=rng) for _ in range(2))
    assert not np.any(one == two)


def test_charged_before_the_release() -> None:
    total = clip_l2(np.ones((4, 6)), 1.0).sum()
    ledger = Ledger.in_memory(cap_epsilon=0.5, cap_delta=0.0)
    KNormMechanism.for_budget(total, epsilon=0.5).release(total, rng=seeded(0), ledger=ledger)
    with pytest.raises(BudgetExceeded):
        KNormMechanism(scale=1.0).release(total, rng=seeded(1), ledger=ledger)
    with pytest.raises(InvalidArgument):
        KNormMechanism(scale=-1.0)
