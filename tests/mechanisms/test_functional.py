"""The functional mechanism: every noise, its price, repair, and solvers that agree."""

from __future__ import annotations

import numpy as np
import pytest

from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.mechanisms import Noise, RandomisedResponse, mechanism_for, release_moments
from privet.mechanisms.functional import standard_deviation
from privet.noise import seeded
from privet.sensitivity import Moments, MomentSum


def total(n: int = 4000, seed: int = 0) -> MomentSum:
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, 3))
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    out = Moments(features=3, outputs=2).sum()
    out.add(h, (h[:, 0] > 0).astype(int))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_every_noise_meets_its_budget(noise: Noise, adjacency: Adjacency) -> None:
    value = total().bounded()
    delta = 1e-5 if "gaussian" in noise.value else 0.0
    found = mechanism_for(value, noise=noise, epsilon=1.0, delta=delta, adjacency=adjacency)
    assert 0.99 < found.loss(value, adjacency=adjacency).epsilon(delta) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("noise", list(Noise))
def test_noise_has_the_stated_size_and_the_charge_comes_first(noise: Noise) -> None:
    sums = total()
    value = sums.bounded()
    delta = 1e-5 if "gaussian" in noise.value else 0.0
    found = mechanism_for(value, noise=noise, epsilon=1.0, delta=delta)
    rng = seeded(3)
    gaps = [found.release(value, rng=rng.child(i)) - value.value for i in range(400)]
    expected = standard_deviation(found, value.dimension)
    assert np.std(gaps) == pytest.approx(expected, rel=0.06)
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=delta)
    released = release_moments(sums, found, rng=seeded(0), ledger=ledger)
    assert released.gram_noise == released.cross_noise == expected
    with pytest.raises(BudgetExceeded):
        release_moments(sums, found, rng=seeded(0), ledger=ledger)


def test_the_released_objective_is_solved_alike_by_both_solvers() -> None:
    sums = total(20_000)
    value = sums.bounded()
    found = mechanism_for(value, noise=Noise.GAUSSIAN, epsilon=1.0, delta=1e-5)
    released = release_moments(sums, found, rng=seeded(1))
    for objective in (
        released.squared_error(),
        released.cross_entropy(first=released.cross.sum(axis=1), records=20_000),
    ):
        closed = objective.minimum(ridge=released.ridge)
        assert np.allclose(closed, objective.descend(ridge=released.ridge, epochs=3000), atol=1e-6)
        assert closed[0, 1] > 5 * np.abs(closed[1:, 1]).max()  # the feature that decides


def test_only_vector_noise_has_a_standard_deviation() -> None:
    with pytest.raises(InvalidArgument):
        standard_deviation(RandomisedResponse(classes=2, epsilon=1.0), 1)  # type: ignore[arg-type]
