"""Bounds: replayed on neighbouring data in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Backing, Premise
from privet.sensitivity import (
    BoundedValue,
    ClippedRows,
    Sensitivity,
    categories,
    clip_l1,
    clip_l2,
    clip_range,
    count,
)

ADVERSARIAL = [0.0, 1.0, -1.0, 1e30, -1e30, 1e-30, 5e-324, 2.2e-308, 1.7e308, 0.1, 3.0]
ENTRIES = st.one_of(
    st.sampled_from([*ADVERSARIAL, math.nan, math.inf, -math.inf]), st.floats(), st.floats(-2, 2)
)
BOUNDS = st.one_of(st.sampled_from([1.0, 0.1, 1e30, 1e-30, 3.7]), st.floats(1e-6, 1e6))
DIMENSION = 3
ROW = st.lists(ENTRIES, min_size=DIMENSION, max_size=DIMENSION)
ROWS = st.lists(ROW, max_size=6)
HOW = st.sampled_from(["l1", "l2", "range"])
CLAIM = Premise(about="bound", text="test", backing=Backing.TESTED)


def clipped(how: str, rows: list[list[float]], bound: float) -> ClippedRows:
    x = np.array(rows, dtype=np.float64).reshape(len(rows), DIMENSION)
    if how == "range":
        return clip_range(x, -0.3 * bound, bound)
    return (clip_l1 if how == "l1" else clip_l2)(x, bound)


def distance(a: BoundedValue, b: BoundedValue) -> tuple[Fraction, Fraction]:
    """L1 norm and squared L2 norm of a difference, exactly."""
    d = [abs(Fraction(x) - Fraction(y)) for x, y in zip(a.value, b.value, strict=True)]
    return sum(d, Fraction(0)), sum((x * x for x in d), Fraction(0))


def within(a: BoundedValue, b: BoundedValue, limit: Sensitivity) -> bool:
    l1, l2_squared = distance(a, b)
    return l1 <= Fraction(limit.l1) and l2_squared <= Fraction(limit.l2) ** 2


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(HOW, ROWS, ROW, ROW, BOUNDS, st.integers(1, 50))
def test_neighbours_stay_within_the_declared_sensitivity(
    how: str, rows: list[list[float]], one: list[float], other: list[float], bound: float, n: int
) -> None:
    """Add, remove, replace (also by a NaN row, an infinite one or a duplicate), exactly."""
    without = clipped(how, rows, bound)
    with_one, with_other = clipped(how, [*rows, one], bound), clipped(how, [other, *rows], bound)
    assert within(with_one.sum(), without.sum(), without.sum().add_remove)
    assert within(with_one.sum(), with_other.sum(), without.sum().replace_one)
    doubled = clipped(how, [*rows, one, one], bound)
    assert within(doubled.sum(), with_one.sum(), without.sum().add_remove)
    a, b, c = (x.mean(records=n) for x in (with_one, without, with_other))
    assert within(a, b, b.add_remove)
    assert within(a, c, b.replace_one)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from([1, 2]), ROW, BOUNDS)
def test_no_row_is_longer_than_the_bound(order: int, row: list[float], bound: float) -> None:
    rows = (clip_l1 if order == 1 else clip_l2)([row], bound)
    exact = [abs(Fraction(int(u)) * Fraction(rows.spacing)) for u in rows.units[0]]
    assert sum(x**order for x in exact) <= Fraction(bound) ** order


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("magnitude", [1e30, 1.0, 1e-30, 1e-40])
@pytest.mark.parametrize("d", [1, 10, 10_000])
def test_clipping_is_tight_and_never_over(dtype: type, magnitude: float, d: int) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((20, d)) * magnitude).astype(dtype)
    bound = float(np.linalg.norm(x[0].astype(float))) / 2
    rows = clip_l2(x, bound)
    for units, norm in zip(rows.units, np.linalg.norm(x.astype(float), axis=1), strict=True):
        square = sum(int(u) ** 2 for u in units)
        assert Fraction(square) * Fraction(rows.spacing) ** 2 <= Fraction(bound) ** 2
        assert math.sqrt(square) * rows.spacing > min(norm, bound) * (1 - 1e-5)


def test_short_rows_are_left_alone() -> None:
    x = np.array([[0.25, -0.125], [0.0, 0.5]])
    assert clip_l2(x, 1.0).sum().value.tolist() == [0.25, 0.375]
    assert clip_l1(x, 1.0).sum().value.tolist() == [0.25, 0.375]


def test_bad_rows_are_dropped_and_counted() -> None:
    x = np.array([[1.0, math.nan], [math.inf, 0.0], [0.5, 0.25]])
    total = clip_l2(x, 1.0).sum()
    assert total.value.tolist() == [0.5, 0.25] and total.invalid == 2
    assert clip_range([math.nan, 3.0], 2.0, 4.0).sum().value == 5.0  # the nearest point to zero


def test_sums_do_not_depend_on_order_or_size() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1000, 3)) * np.exp(rng.normal(0, 20, (1000, 1)))
    a, b = clip_l2(x, 1.0).sum().value, clip_l2(x[rng.permutation(1000)], 1.0).sum().value
    assert np.array_equal(a, b)
    many = clip_range(np.ones(3_000_000, dtype=np.float32), 0.0, 1.0).sum()
    assert many.value == 3_000_000  # float32 would also get here, float16 and bfloat16 would not


def test_empty_data() -> None:
    assert clip_l2(np.empty((0, 4)), 1.0).sum().value.tolist() == [0.0] * 4
    assert float(clip_range([], 0.0, 1.0).sum().value) == 0.0
    assert float(count([]).value) == 0.0
    assert categories([], 3).histogram().value.tolist() == [0.0] * 3


def test_declared_sensitivities() -> None:
    total = clip_l2(np.ones((2, 4)), 3.0).sum()
    assert (total.add_remove.l2, total.replace_one.l2) == (3.0, 6.0)
    assert total.add_remove.l1 == pytest.approx(6.0)
    one = clip_l1(np.ones((2, 4)), 3.0).sum().add_remove
    assert (one.l1, one.l2) == (3.0, 3.0)
    box = clip_range(np.ones((2, 4)), -1.0, 2.0).sum()
    assert box.add_remove.l1 == pytest.approx(8.0) and box.replace_one.l2 == pytest.approx(6.0)
    votes = categories([0, 1, 1, 7, -1, 0.5, math.nan], 2)
    assert votes.invalid == 4
    assert votes.histogram().value.tolist() == [5.0, 2.0]
    assert votes.histogram().sensitivity(Adjacency.REPLACE_ONE).l1 == 2.0


def test_images_are_rows_too() -> None:
    assert clip_l2(np.ones((5, 2, 3)), 1.0).sum().value.shape == (2, 3)


def test_a_value_cannot_be_changed_afterwards() -> None:
    total = clip_l2([[1.0, 2.0]], 1.0).sum()
    with pytest.raises(ValueError, match="read-only"):
        total.value[0] = 9.0


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf, "x", 1e-250])
def test_bad_bounds(bound: object) -> None:
    for clip in (clip_l1, clip_l2):
        with pytest.raises(InvalidArgument, match="bound must be"):
            clip([[1.0]], bound)  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [(1.0, 0.0), (1.0, 1.0), (math.nan, 1.0), (0.0, math.inf)])
def test_bad_ranges(ends: tuple[float, float]) -> None:
    with pytest.raises(InvalidArgument, match="range must be"):
        clip_range([1.0], *ends)


@pytest.mark.parametrize("rows", [3.0, [["a"]], [[1.0], [1.0, 2.0]], np.empty((2, 0))])
def test_bad_rows(rows: object) -> None:
    with pytest.raises(InvalidArgument, match="rows must be"):
        clip_l2(rows, 1.0)  # type: ignore[arg-type]


def test_other_bad_input() -> None:
    for n in (0, -1, 1.5, None):
        with pytest.raises(InvalidArgument, match="records must be"):
            clip_l2([[1.0]], 1.0).mean(records=n)  # type: ignore[arg-type]
    s = Sensitivity(l1=1.0, l2=1.0)
    with pytest.raises(InvalidArgument, match="value must be finite"):
        BoundedValue(value=np.array([math.nan]), add_remove=s, replace_one=s, premise=CLAIM)
    with pytest.raises(InvalidArgument, match="spacing must be"):
        BoundedValue(value=np.ones(1), add_remove=s, replace_one=s, premise=CLAIM, spacing=0.3)
    with pytest.raises(InvalidArgument, match="l1 must be"):
        Sensitivity(l1=-1.0, l2=1.0)
    with pytest.raises(InvalidArgument, match="which must be"):
        count([1, 0])
    with pytest.raises(InvalidArgument, match="classes must be"):
        categories([0], 1)
    for labels in (["a"], [[0]]):
        with pytest.raises(InvalidArgument, match="labels must be"):
            categories(labels, 2)
