"""Products without rounding: held against integers, in any order, by hostile records."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgument
from privet.rowwise_arithmetic import (
    Product,
    power_of_two_at_least,
    round_to_grid,
    row_norms,
    row_sums,
    scale_by_power_of_two,
    tanh,
)


def exactly(x: np.ndarray, matrix: np.ndarray) -> list[list[Fraction]]:
    """The product in rational arithmetic."""
    rows = [[Fraction(float(v)) for v in row] for row in x]
    columns = [[Fraction(float(v)) for v in column] for column in matrix.T]
    return [[sum(a * b for a, b in zip(r, c, strict=True)) for c in columns] for r in rows]


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 40),
    columns=st.integers(1, 5),
    size=st.integers(-60, 60),
    bits=st.sampled_from([None, 18, 22]),
    reach=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_a_product_is_that_of_the_cut_factors_without_any_rounding(
    seed: int, rows: int, columns: int, size: int, bits: int | None, reach: bool
) -> None:
    rng = np.random.default_rng(seed)
    kind = rng.integers(3)
    matrix = rng.normal(size=(rows, columns)) if kind else np.ones((rows, columns))
    x = rng.normal(size=(3, rows)) if kind < 2 else np.sign(rng.normal(size=(3, rows)))
    if reach:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    x *= 2.0**size
    product = Product(matrix, reach=1.0001 * 2.0**size if reach else None, bits=bits)
    if reach:
        given_to_it, sizes = round_to_grid(x, product.step), np.ones((3, 1))
    else:
        part, sizes = scale_by_power_of_two(x)
        given_to_it = round_to_grid(part, product.step)
    expected = exactly(given_to_it, product.matrix)
    found = product(x)
    for i in range(3):
        for k in range(columns):
            assert Fraction(found[i, k]) == expected[i][k] * Fraction(float(sizes[i, 0]))
    # the cut keeps what it should: 15 bits of the largest entries at the worst
    np.testing.assert_allclose(
        found, x @ matrix, atol=rows * 2.0**-14 * np.abs(matrix).max() * np.abs(x).max()
    )


@pytest.mark.parametrize("d", [1, 7, 784, 4000])
def test_every_order_of_the_terms_gives_the_same_bits(d: int) -> None:
    """Worst cases included: all entries as large as they may be, of one sign and of both."""
    rng = np.random.default_rng(d)
    matrix = rng.normal(size=(d, 3))
    product = Product(matrix)
    signs = np.sign(product.matrix[:, 0])
    for x in (rng.normal(size=d), signs, -signs, np.ones(d), rng.choice([-1.0, 1.0], d)):
        given_to_it = round_to_grid(scale_by_power_of_two(x[None])[0], product.step)[0]
        terms = given_to_it * product.matrix[:, 0]
        answer = product(x[None])[0, 0] / scale_by_power_of_two(x[None])[1][0, 0]
        for _ in range(20):
            order = rng.permutation(d)
            assert float(np.cumsum(terms[order])[-1]) == answer
        assert np.abs(given_to_it / product.step).sum() < 2**53


def test_records_of_any_size_and_records_that_are_not_numbers() -> None:
    product = Product(np.array([[1.0, -1.0], [0.5, 0.25]]))
    x = np.array([[1e-310, 0.0], [1e290, 1e290], [np.nan, 1.0], [np.inf, 1.0], [1.7e308, 0.0]])
    with np.errstate(invalid="ignore"):
        found = product(x)
    assert np.isfinite(found[:2]).all() and np.isnan(found[2:]).all()
    np.testing.assert_allclose(found[1], [1.5e290, -0.75e290], rtol=1e-7)


def test_no_sign_of_zero_tells_the_order() -> None:
    product = Product(np.array([[-1.0], [1.0]]))
    found = product(np.array([[0.0, 0.0], [-0.0, -0.0], [1.0, 1.0]]))
    assert not np.signbit(found).any()
    assert not np.signbit(round_to_grid(np.array([-0.0, -1e-9]), 0.25)).any()


def test_sums_in_one_order_are_sums() -> None:
    rng = np.random.default_rng(0)
    for width in (0, 1, 2, 3, 17, 100, 1000):
        rows = rng.normal(size=(5, width)).astype(np.float32)
        kept = rows.copy()
        np.testing.assert_allclose(row_sums(rows), rows.sum(axis=1, dtype=float), atol=1e-12)
        np.testing.assert_allclose(row_norms(rows), np.linalg.norm(rows.astype(float), axis=1))
        np.testing.assert_array_equal(rows, kept)
        for n in range(1, 5):
            assert np.array_equal(row_sums(rows[:n]), row_sums(rows)[:n])
            assert np.array_equal(row_sums(rows[n:]), row_sums(rows)[n:])


def test_tanh_is_the_hyperbolic_tangent_in_every_place() -> None:
    x = np.concatenate([np.linspace(-25, 25, 4001), np.logspace(-300, 2, 500), [0.0, np.inf]])
    np.testing.assert_allclose(tanh(x), np.tanh(x), rtol=1e-14, atol=0.0)
    assert np.isnan(tanh(np.array([np.nan, 1.0]))[0])
    for n in (1, 2, 3, 7, 8, 33):
        for start in range(9):
            assert np.array_equal(tanh(x[start : start + n]), tanh(x)[start : start + n])


def test_powers_of_two() -> None:
    assert [power_of_two_at_least(v) for v in (1.0, 1.01, 0.5, 0.51)] == [1.0, 2.0, 0.5, 1.0]


def test_a_matrix_without_columns_gives_rows_without_columns() -> None:
    assert Product(np.zeros((3, 0)))(np.ones((2, 3))).shape == (2, 0)
    assert (Product(np.zeros((3, 2)))(np.ones((2, 3))) == 0).all()


def test_what_does_not_fit_is_refused() -> None:
    for wrong in (np.array([[np.nan]]), np.zeros(3), np.zeros((0, 2))):
        with pytest.raises(InvalidArgument):
            Product(wrong)
    with pytest.raises(InvalidArgument):
        Product(np.ones((5, 1)), bits=45)
