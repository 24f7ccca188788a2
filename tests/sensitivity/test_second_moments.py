"""Moments: sensitivities against exhaustive search, and replayed on neighbours exactly."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgument
from privet.sensitivity import BoundedValue, Moments, Sensitivity, moments, user_weights
from privet.sensitivity.second_moments import clip_to_unit_ball

SHAPES = st.builds(
    Moments,
    features=st.just(3),
    outputs=st.just(2),
    second=st.sampled_from([0.0, 0.25, 1.0, 2.0]),
    cross=st.sampled_from([0.3, 1.0, 2.0]),
    pairs=st.booleans(),
    one_hot=st.just(True),
    bits=st.sampled_from([6, 12]),
)
ENTRIES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e300, -1e300, 5e-324, math.nan, math.inf]),
    st.floats(-2, 2),
)
ROW = st.lists(ENTRIES, min_size=3, max_size=3)
LABEL = st.integers(-1, 2)
RECORD = st.tuples(ROW, LABEL)


def total(shape: Moments, records: list[tuple[list[float], int]]) -> BoundedValue:
    rows = np.array([row for row, _ in records], dtype=np.float64).reshape(len(records), 3)
    return moments(rows, np.array([y for _, y in records], dtype=np.int64), of=shape)


def within(a: BoundedValue, b: BoundedValue, limit: Sensitivity) -> bool:
    gaps = [abs(Fraction(x) - Fraction(y)) for x, y in zip(a.value, b.value, strict=True)]
    squares = sum((g * g for g in gaps), Fraction(0))
    return sum(gaps, Fraction(0)) <= Fraction(limit.l1) and squares <= Fraction(limit.l2) ** 2


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(SHAPES, st.lists(RECORD, max_size=5), RECORD, RECORD)
def test_neighbours_stay_within_the_declared_sensitivity(shape, rest, one, other) -> None:
    """Add, remove, replace, in L1 and L2 and in exact arithmetic; adversarial rows too."""
    without, with_one = total(shape, rest), total(shape, [*rest, one])
    with_other = total(shape, [other, *rest])
    assert within(with_one, without, shape.add_remove)
    assert within(with_one, with_other, shape.replace_one)


def packed(shape: Moments, h: np.ndarray, y: np.ndarray) -> np.ndarray:
    """phi(h, y) for many h at once, in real arithmetic."""
    i, j = np.triu_indices(shape.features)
    weight = np.where(i == j, shape.second, shape.pair)
    keep = (i == j) | shape.pairs
    parts = [(weight * h[:, i] * h[:, j])[:, keep]] if shape.second else []
    cross = shape.cross * h[:, :, None] * y[:, None, :]
    return np.hstack([*parts, cross.reshape(len(h), -1)])


def ball(d: int, steps: int) -> np.ndarray:
    """A grid of the unit ball, its border included, and the flat vectors."""
    axis = np.linspace(-1.0, 1.0, steps)
    points = np.array(list(itertools.product(axis, repeat=d)))
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    border = points[norms[:, 0] > 0] / norms[norms[:, 0] > 0]
    inside = points[norms[:, 0] <= 1.0]
    return np.unique(np.vstack([inside, border]).round(12), axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (1.0, 0.25), (0.25, 1.0), (0.0, 1.0), (2.0, 1.0)])
def test_sensitivities_equal_the_exhaustive_maximum(d: int, a: float, b: float) -> None:
    """Tiny domains, gridded: add-remove in both norms and replace-one in L2 are reached."""
    shape = Moments(features=d, outputs=2, second=a, cross=b)
    h = ball(d, {1: 41, 2: 41, 3: 9}[d])
    phi = packed(shape, np.repeat(h, 2, axis=0), np.tile(np.eye(2), (len(h), 1)))
    l1, l2 = np.abs(phi).sum(axis=1).max(), np.linalg.norm(phi, axis=1).max()
    assert l1 <= shape.add_remove.l1 * (1 + 1e-9) and l1 == pytest.approx(
        shape.add_remove.l1, rel=1e-6
    )
    assert l2 <= shape.add_remove.l2 * (1 + 1e-9) and l2 == pytest.approx(
        shape.add_remove.l2, rel=1e-4
    )
    squares = (phi**2).sum(axis=1)
    gaps = squares[:, None] + squares[None, :] - 2.0 * phi @ phi.T
    far = math.sqrt(gaps.max())
    assert far <= shape.replace_one.l2 * (1 + 1e-9)
    if d >= 2:
        assert far == pytest.approx(shape.replace_one.l2, rel=0.01)
    some = phi[:: max(1, len(phi) // 500)]
    l1_far = max(float(np.abs(some - row).sum(axis=1).max()) for row in some)
    assert l1_far <= shape.replace_one.l1 * (1 + 1e-9)


def test_replace_one_in_l1_is_exact_for_two_features() -> None:
    """h h^T alone, d = 2: eigenvectors of [[1, r/2], [r/2, -1]]."""
    shape = Moments(features=2)
    _, vectors = np.linalg.eigh(np.array([[1.0, shape.pair / 2], [shape.pair / 2, -1.0]]))
    none = np.zeros((2, 1))
    phi = packed(Moments(features=2, outputs=1), vectors.T, none)[:, :3]
    assert float(np.abs(phi[0] - phi[1]).sum()) == pytest.approx(shape.replace_one.l1, rel=1e-12)


def test_far_below_the_papers_bound() -> None:
    """d(b + b^2/4), the auto-encoder paper's bound for unit cubes, against unit balls here."""
    for d, b, factor in ((784, 25, 7), (30, 200, 48)):
        shape = Moments(features=b, outputs=d, one_hot=False)
        assert factor * shape.replace_one.l1 < d * (b + b * b / 4)
        assert shape.add_remove.l2 < 1.5


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(SHAPES, st.lists(RECORD, min_size=1, max_size=9), st.integers(1, 4), st.booleans())
def test_batches_and_order_do_not_matter(shape, records, size, backwards) -> None:
    """Sums are exact: any batches, any order, the same bits."""
    streamed = shape.sum()
    order = records[::-1] if backwards else records
    for start in range(0, len(order), size):
        part = order[start : start + size]
        streamed.add([row for row, _ in part], [y for _, y in part])
    assert streamed.bounded().value.tolist() == total(shape, records).value.tolist()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.booleans())
def test_packing_is_undone(seed: int, pairs: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = Moments(features=4, outputs=3, second=0.7, cross=0.4, pairs=pairs)
    h, y = rng.uniform(-0.4, 0.4, size=(50, 4)), rng.integers(3, size=50)
    gram, cross = shape.unpack(moments(h, y, of=shape).value)
    cut = clip_to_unit_ball(h, shape.bits)[0] * 2.0**-shape.bits
    expected = cut.T @ cut
    assert np.allclose(gram, expected if pairs else np.diag(np.diag(expected)), atol=1e-12)
    assert np.allclose(cross, cut.T @ np.eye(3)[y], atol=1e-12)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(ROW, LABEL, st.integers(0, 3)), max_size=8),
    st.lists(st.tuples(ROW, LABEL), max_size=5),
    st.sampled_from([0.5, 1.0, 2.5]),
)
def test_a_user_moves_the_sum_by_a_share(rest, own, share) -> None:
    """All of one user's records come or go; the others keep theirs."""
    shape = Moments(features=3, outputs=2, share=share)

    def add_up(records):
        out = shape.sum()
        if records:
            users = [user for *_, user in records]
            rows, labels = [row for row, *_ in records], [y for _, y, _ in records]
            out.add(rows, labels, user_weights(users, share=share))
        return out.bounded()

    mine = [(row, y, 99) for row, y in own]
    assert within(add_up([*rest, *mine]), add_up(rest), shape.add_remove)


def test_real_targets_are_held_in_the_ball() -> None:
    shape = Moments(features=2, outputs=2, one_hot=False)
    out = moments([[1.0, 0.0]], [[30.0, 40.0]], of=shape)
    _, cross = shape.unpack(out.value)
    assert np.allclose(cross[0], [0.6, 0.8], atol=1e-3)
    assert np.linalg.norm(out.value) <= shape.add_remove.l2


def test_large_rows_and_long_rows() -> None:
    cut, bad = clip_to_unit_ball(np.array([[1e300, 1e300], [np.nan, 0.0], [3.0, 4.0]]), 12)
    assert bad == 1 and np.allclose(cut[[0, 2]] / 4096, [[0.7071] * 2, [0.6, 0.8]], atol=5e-4)
    for d in (1, 7, 500):
        rows = np.random.default_rng(d).normal(size=(200, d)) * 10.0
        units = clip_to_unit_ball(rows, 12)[0].astype(np.int64)
        assert (units**2).sum(axis=1).max() <= 4096**2


def test_what_cannot_be_is_refused() -> None:
    for bad in (
        {"second": 0.0, "outputs": 0},
        {"second": 3.0},
        {"second": 0.001},
        {"features": 0},
        {"bits": 30},
    ):
        with pytest.raises(InvalidArgument):
            Moments(**{"features": 3, **bad})
    shape = Moments(features=2, outputs=2)
    for rows, labels in (([[1.0]], [0]), ([[1.0, 0.0]], [0, 1]), ([[1.0, 0.0]], None)):
        with pytest.raises(InvalidArgument):
            moments(rows, labels, of=shape)
    with pytest.raises(InvalidArgument):
        user_weights([["a"]])
