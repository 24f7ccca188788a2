"""Losses of order two: their error, their coefficients and their minima."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgument
from privet.sensitivity import (
    Quadratic,
    bound_weights,
    cross_entropy,
    softplus,
    softplus_taylor,
    squared_error,
    taylor_error,
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.floats(-30.0, 30.0))
def test_taylor_error_is_within_its_bound_and_one_sided(z: float) -> None:
    with mpmath.workdps(40):
        x = mpmath.mpf(z)
        error = mpmath.log1p(mpmath.exp(x)) - (mpmath.log(2) + x / 2 + x * x / 8)
        assert -(x**4) / 192 - mpmath.mpf(10) ** -35 <= error <= mpmath.mpf(10) ** -35
    assert abs(float(softplus(z) - softplus_taylor(z)) - float(error)) < 1e-12 * (1 + z * z)


def test_taylor_error_is_sharp_near_zero_and_as_published_at_one() -> None:
    z = 0.05
    assert float(softplus_taylor(z) - softplus(z)) / taylor_error(z) == pytest.approx(1.0, abs=1e-3)
    at_one = float(softplus_taylor(1.0) - softplus(1.0))
    assert at_one == pytest.approx(0.00489, abs=1e-5) and at_one <= taylor_error(1.0)


def records(seed: int, n: int = 30, d: int = 4, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, d))
    h /= np.maximum(1.0, np.linalg.norm(h, axis=1, keepdims=True))
    return h, np.eye(k)[rng.integers(k, size=n)]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 2.0))
def test_coefficients_give_the_loss_of_the_records(seed: int, radius: float) -> None:
    """Squared error exactly; cross-entropy from above, within n K r^4 / 192."""
    h, y = records(seed)
    n, k = y.shape
    w = bound_weights(np.random.default_rng(seed + 1).normal(size=(h.shape[1], k)), radius)
    z = h @ w
    assert np.abs(z).max() <= radius * (1 + 1e-12)
    a, b = h.T @ h, h.T @ y
    squares = squared_error(gram=a, cross=b, squares=float((y**2).sum()))
    assert squares.value(w) == pytest.approx(float(((y - z) ** 2).sum()), rel=1e-10)
    polynomial = cross_entropy(gram=a, cross=b, first=h.sum(axis=0), records=n)
    true = float((y * softplus(-z) + (1 - y) * softplus(z)).sum())
    assert -1e-9 <= polynomial.value(w) - true <= n * k * taylor_error(radius) + 1e-9


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 10.0))
def test_closed_form_descent_and_gradient_agree(seed: int, ridge: float) -> None:
    h, y = records(seed)
    f = cross_entropy(gram=h.T @ h, cross=h.T @ y, first=h.sum(axis=0), records=len(h))
    w = f.minimum(ridge=ridge)
    assert np.allclose(f.gradient(w) + ridge * w, 0.0, atol=1e-9)
    assert np.allclose(f.descend(ridge=ridge, epochs=2000), w, atol=1e-6)
    step = 1e-6 * np.random.default_rng(seed).normal(size=w.shape)
    slope = (f.value(w + step) - f.value(w - step)) / 2.0
    assert slope == pytest.approx(float(np.sum(f.gradient(w) * step)), abs=1e-9)


def test_negative_curvature_is_repaired() -> None:
    f = Quadratic(curvature=np.diag([2.0, -5.0]), linear=np.array([[-2.0], [-1.0]]))
    assert f.minimum(ridge=1.0).ravel() == pytest.approx([2.0 / 3.0, 1.0])
    assert f.minimum(ridge=0.0).ravel() == pytest.approx([1.0, 0.0])
    assert f.descend(ridge=1.0, epochs=500).ravel() == pytest.approx([2.0 / 3.0, 1.0])


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        Quadratic(curvature=np.zeros((2, 3)), linear=np.zeros((2, 1)))
    with pytest.raises(InvalidArgument):
        Quadratic(curvature=np.eye(2), linear=np.zeros((3, 1)))
    with pytest.raises(InvalidArgument):
        taylor_error(-1.0)
    assert taylor_error(0.0) == 0.0 and math.isfinite(taylor_error(10.0))
