"""Releases on a grid: exact addition, honest sensitivities, nothing in the low bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.errors import InvalidArgument
from privet.noise import grid, seeded

REALS = st.floats(-1e6, 1e6, allow_nan=False)
SCALES = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(REALS, REALS), min_size=1, max_size=6), SCALES)
def test_rounding_widens_sensitivity_no_more_than_declared(
    pairs: list[tuple[float, float]], scale: float
) -> None:
    step = grid.spacing(scale)
    a, b = np.array(pairs).T
    exact = np.abs(a - b)
    rounded = np.abs(grid.to_units(a, step) - grid.to_units(b, step)) * step
    d = len(pairs)
    slack = 1.0 + 1e-12
    l1 = grid.l1_after_rounding(float(exact.sum()) * slack, dimension=d, step=step)
    l2 = grid.l2_after_rounding(float(np.linalg.norm(exact)) * slack, dimension=d, step=step)
    assert rounded.sum() <= l1 * slack
    assert np.linalg.norm(rounded) <= l2 * slack


def test_the_widening_is_reached() -> None:
    """Coordinates that just straddle a rounding boundary move by a whole step each."""
    g, d = 0.25, 50
    a, b = np.full(d, 0.125 - 1e-9), np.full(d, 0.125 + 1e-9)
    moved = np.abs(grid.to_units(a, g) - grid.to_units(b, g)) * g
    assert moved.sum() == d * g
    assert np.linalg.norm(moved) == pytest.approx(math.sqrt(d) * g)
    assert grid.l1_after_rounding(d * 2e-9, dimension=d, step=g) == pytest.approx(d * g)
    assert grid.l2_after_rounding(math.sqrt(d) * 2e-9, dimension=d, step=g) == pytest.approx(
        math.sqrt(d) * g
    )


@given(REALS, SCALES, st.integers(0, 2**32))
def test_release_is_post_processing_of_the_ideal_one(v: float, scale: float, seed: int) -> None:
    """v_g + round(n), in exact integers."""
    from fractions import Fraction

    step = grid.spacing(scale)
    noise = seeded(seed).gaussian_on_grid((), scale)
    v_g = int(grid.to_units(np.array(v), step))
    released = grid.add(np.array(v), noise, step=step)
    if abs(v_g) < 2**52:
        assert Fraction(float(released)) == (v_g + int(noise)) * Fraction(step)


def test_the_grid_is_public() -> None:
    assert grid.spacing(1.0) == 2.0**-26
    assert grid.spacing(1.99) == 2.0**-26
    assert grid.spacing(0.75) == 2.0**-27
    assert math.frexp(grid.spacing(3e-7))[0] == 0.5


@pytest.mark.parametrize("v", [1e300, -1e300, 1.7e308])
def test_huge_values_are_held_not_refused(v: float) -> None:
    out = grid.add(np.array([v]), np.array([5]), step=grid.spacing(1.0))
    assert np.isfinite(out).all() and np.sign(out[0]) == np.sign(v)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e-300, 1e300])
def test_bad_scales(scale: float) -> None:
    with pytest.raises(InvalidArgument, match="scale must be"):
        grid.spacing(scale)


def naive_hits(value: float, noise: np.ndarray) -> float:
    o = value + noise
    return float(np.mean((o - 1) + 1 != o))


def test_precision_attack_in_brief() -> None:
    """The naive sum is told apart; ours never (2 million of each in tests/statistical)."""
    noise = seeded(2).gaussian(100_000, 1.0)
    assert naive_hits(0.0, noise) > 0.3
    assert naive_hits(1.0, noise) == 0.0
    for value in (0.0, 1.0):
        on_grid = seeded(2).gaussian_on_grid(100_000, 1.0)
        o = grid.add(np.full(100_000, value), on_grid, step=grid.spacing(1.0))
        assert np.array_equal((o - 1) + 1, o)


@given(st.integers(-40, 40), st.integers(0, 40), st.sampled_from([0.25, 1.0, 8.0]))
def test_a_distance_rounds_to_at_most_its_ceiling(half: int, gap: int, step: float) -> None:
    """Halves are the worst case: 0.5 and 1.5 must not become 0 and 2."""
    first, second = 0.5 * half * step, (0.5 * half + 0.5 * gap) * step
    far = abs(
        int(grid.to_units(np.array(first), step)) - int(grid.to_units(np.array(second), step))
    )
    assert far <= math.ceil(0.5 * gap)
    assert far * step <= grid.l1_after_rounding(0.5 * gap * step, dimension=1, step=step)
