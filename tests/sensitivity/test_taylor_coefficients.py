"""Coefficients of the paper's losses: sensitivities against exhaustive search, and the losses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgument
from privet.sensitivity import Moments, TaylorCoefficients, softplus_taylor


def every_record(b: int, d: int, axis: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All (h, x) on a grid of the unit cube."""
    h = np.array(list(itertools.product(axis, repeat=b)))
    x = np.array(list(itertools.product(axis, repeat=d)))
    return np.repeat(h, len(x), axis=0), np.tile(x, (len(h), 1))


def contributions(b: int, d: int, axis: tuple[float, ...]) -> np.ndarray:
    """What each record of the grid adds, one row each, computed entry by entry."""
    h, x = every_record(b, d, axis)
    columns = [(0.5 - x[:, j]) * h[:, e] for j in range(d) for e in range(b)]
    columns += [h[:, e] * h[:, q] / (8.0 if e == q else 4.0) for e in range(b) for q in range(e, b)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("b", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_sensitivities_equal_the_exhaustive_maximum(b: int, d: int) -> None:
    """Every pair of records of the grid {0, 1/2, 1}: both norms, both adjacencies, reached."""
    own = TaylorCoefficients(features=b, outputs=d)
    phi = contributions(b, d, (0.0, 0.5, 1.0))
    assert np.abs(phi).sum(axis=1).max() == pytest.approx(own.add_remove.l1, rel=1e-9)
    assert np.linalg.norm(phi, axis=1).max() == pytest.approx(own.add_remove.l2, rel=1e-9)
    squares = (phi**2).sum(axis=1)
    apart = np.sqrt(max((squares[:, None] + squares - 2.0 * phi @ phi.T).max(), 0.0))
    assert apart == pytest.approx(own.replace_one.l2, rel=1e-9)
    far = max(float(np.abs(phi - row).sum(axis=1).max()) for row in phi)
    assert far == pytest.approx(own.replace_one.l1, rel=1e-9)


UNIT = st.floats(-0.5, 1.5)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(UNIT, min_size=10, max_size=10), st.lists(UNIT, min_size=10, max_size=10))
def test_no_pair_of_records_is_further_apart(one: list[float], other: list[float]) -> None:
    """Anywhere in the cube (outside of it records are held there), d = 4 and b = 6."""
    own = TaylorCoefficients(features=6, outputs=4)
    a, b = (own.sum([r[:6]], [r[6:]]).value for r in (one, other))
    assert np.abs(a - b).sum() <= own.replace_one.l1
    assert np.linalg.norm(a - b) <= own.replace_one.l2
    assert np.abs(a).sum() <= own.add_remove.l1 and np.linalg.norm(a) <= own.add_remove.l2


def test_how_far_below_the_papers_bound() -> None:
    """Exact on the paper's own cube (reached, so not to be had any smaller), and in the unit ball.

    The cube gives 7.2 and 36.2 in L1; moments of the unit ball, which the sound reading releases,
    give far more than the 7 and 48 that are asked for.
    """
    for d, b, cube, ball in ((784, 25, 7.25, 7), (30, 200, 36.21, 48)):
        own = TaylorCoefficients(features=b, outputs=d)
        assert own.published == d * (b + b * b / 4)
        assert own.published / own.replace_one.l1 == pytest.approx(cube, abs=0.01)
        moments = Moments(features=b, outputs=d, one_hot=False)
        assert own.published / moments.replace_one.l1 > ball
        assert own.published / moments.add_remove.l1 > ball
    assert TaylorCoefficients(features=200, outputs=1).published == 200 + 200**2 / 4


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_coefficients_give_the_taylor_loss_of_the_records(seed: int) -> None:
    rng = np.random.default_rng(seed)
    h, x = (rng.integers(0, 4097, size=(9, k)) / 4096.0 for k in (4, 3))  # not cut any further
    w = rng.normal(size=(4, 3))
    own = TaylorCoefficients(features=4, outputs=3)
    z = h @ w
    direct = float((x * softplus_taylor(-z) + (1 - x) * softplus_taylor(z)).sum())
    constant = 9 * 3 * np.log(2.0)
    found = own.objective(own.sum(h, x).value)
    assert found.value(w) + constant == pytest.approx(direct, rel=1e-10)
    best = found.minimum(ridge=0.0)
    assert np.allclose(found.gradient(best), 0.0, atol=1e-9)


def test_bad_records_count_for_nothing_and_bad_shapes_are_refused() -> None:
    own = TaylorCoefficients(features=2, outputs=1)
    total = own.sum([[1.0, 1.0], [np.nan, 0.0], [0.0, np.inf]], [[1.0], [0.0], [1.0]])
    assert total.invalid == 2 and total.value.tolist() == [-0.5, -0.5, 0.125, 0.25, 0.125]
    for bad in (([[1.0]], [[1.0]]), ([[1.0, 1.0]], [[1.0, 2.0]])):
        with pytest.raises(InvalidArgument):
            own.sum(*bad)
    with pytest.raises(InvalidArgument):
        own.objective(np.zeros(3))
    with pytest.raises(InvalidArgument):
        TaylorCoefficients(features=0, outputs=1)


@pytest.mark.slow
def test_sums_over_many_records_are_exact() -> None:
    """In float64, without cutting, 200,000 records moved by 1 + 4e-11 of the sensitivity."""
    own = TaylorCoefficients(features=1, outputs=1)
    for seed in range(60):
        h = np.random.default_rng(seed).random((200_000, 1))
        h[0] = 1.0
        x = np.zeros_like(h)
        moved = own.sum(h, x).value - own.sum(h[1:], x[1:]).value
        assert np.array_equal(moved, own.sum(h[:1], x[:1]).value)
        assert np.linalg.norm(moved) <= own.add_remove.l2
