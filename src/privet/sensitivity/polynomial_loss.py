"""Losses as polynomials of order two, whose coefficients are sums over records.

With h a row of features, y its target and z = W^T h, the losses of the two functional-mechanism
papers are, for one record and up to terms of higher order,

    cross-entropy of a sigmoid output   log 2 + (1/2 - y) z + z^2 / 8,
    squared error                       y^2 - 2 y z + z^2               (exact),

so that the loss of a data set depends on it through A = sum h h^T, B = sum h y^T, s = sum h, the
number of records and sum ||y||^2 only. Release these with noise once, and any optimiser, run for
any number of epochs, is post-processing.

Symbols: d features, K outputs, A d x d, B d x K, s of length d, W d x K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet import _check
from privet.errors import InvalidArgument

Array = NDArray[np.float64]


def softplus(z: ArrayLike) -> Array:
    """log(1 + e^z), without overflow."""
    return np.logaddexp(0.0, np.asarray(z, dtype=np.float64))


def softplus_taylor(z: ArrayLike) -> Array:
    """log 2 + z/2 + z^2/8, the order-2 Taylor polynomial of log(1 + e^z) at 0.

    >>> float(softplus_taylor(0.0)) == math.log(2.0)
    True
    """
    z = np.asarray(z, dtype=np.float64)
    return np.asarray(math.log(2.0) + z / 2.0 + z * z / 8.0)


def taylor_error(radius: float) -> float:
    """How far `softplus_taylor` can be above log(1 + e^z) for |z| <= radius: radius^4 / 192.

    log(1 + e^z) = log 2 + z/2 + log cosh(z/2). So the difference g(z) = z^2/8 - log cosh(z/2) has
    g(0) = g'(0) = 0 and g''(z) = tanh^2(z/2) / 4, between 0 and z^2/16; integrate twice.

    **Guarantee** softplus(z) - softplus_taylor(z) lies in [-z^4/192, 0]. (Lemma 7 of the adaptive
    Laplace paper has other derivatives and loses a factor.)

    >>> round(taylor_error(1.0), 5)
    0.00521
    """
    return _check.non_negative("radius", radius) ** 4 / 192.0  # 16 * 3 * 4


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Quadratic:
    """f(W) = constant + <linear, W> + tr(W^T curvature W) / 2, one column of W an output.

    >>> f = squared_error(gram=np.eye(2), cross=np.ones((2, 1)), squares=2.0)
    >>> f.minimum(ridge=0.0).ravel().tolist(), f.value(np.ones((2, 1)))
    ([1.0, 1.0], 0.0)
    """

    curvature: Array = field(repr=False)
    linear: Array = field(repr=False)
    constant: float = 0.0

    def __post_init__(self) -> None:
        q, b = np.array(self.curvature, dtype=np.float64), np.array(self.linear, dtype=np.float64)
        if q.ndim != 2 or q.shape[0] != q.shape[1]:
            raise InvalidArgument("curvature", q.shape, "a square matrix")
        if b.ndim != 2 or len(b) != len(q):
            raise InvalidArgument("linear", b.shape, f"a matrix with {len(q)} rows")
        object.__setattr__(self, "curvature", (q + q.T) / 2.0)
        object.__setattr__(self, "linear", b)

    def value(self, weights: ArrayLike) -> float:
        """The value of the loss at these weights, f(W)."""
        w = np.asarray(weights, dtype=np.float64)
        quadratic = np.sum(w * (self.curvature @ w)) / 2.0
        return float(self.constant + np.sum(self.linear * w) + quadratic)

    def gradient(self, weights: ArrayLike) -> Array:
        """The derivative of f at W."""
        return np.asarray(self.linear + self.curvature @ np.asarray(weights, dtype=np.float64))

    def minimum(self, *, ridge: float) -> Array:
        """The minimiser of f(W) + ridge ||W||^2 / 2, its curvature made positive first.

        Negative eigenvalues of the curvature, which only noise can cause, are set to zero: the
        nearest positive semi-definite matrix in the Frobenius norm. A direction that then has
        neither curvature nor ridge gets weight 0.
        """
        values, vectors = np.linalg.eigh(self.curvature)
        stiff = np.maximum(values, 0.0) + _check.non_negative("ridge", ridge)
        # less than 1e-12 of the largest is rounding of the eigenvalues
        usable = stiff > 1e-12 * max(float(stiff.max(initial=0.0)), 1e-300)
        inverse = np.where(usable, 1.0 / np.where(usable, stiff, 1.0), 0.0)
        return np.asarray(-vectors @ (inverse[:, None] * (vectors.T @ self.linear)))

    def descend(self, *, ridge: float, epochs: int, start: ArrayLike | None = None) -> Array:
        """The same minimum by `epochs` steps of accelerated gradient descent (Nesterov).

        Each epoch costs a product with the curvature and no privacy. Steps have length 1/L, L the
        largest eigenvalue, and the momentum of condition number L/ridge.
        """
        ridge = _check.positive("ridge", ridge)
        values, vectors = np.linalg.eigh(self.curvature)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        largest = max(float(values[-1]), 0.0) + ridge
        root = math.sqrt(ridge / largest)
        momentum = (1.0 - root) / (1.0 + root)
        shape = self.linear.shape
        w = np.zeros(shape) if start is None else np.array(start, dtype=np.float64)
        ahead = w
        for _ in range(_check.count("epochs", epochs, minimum=0)):
            following = ahead - (self.linear + positive @ ahead + ridge * ahead) / largest
            ahead = following + momentum * (following - w)
            w = following
        return w


def cross_entropy(
    *, gram: ArrayLike, cross: ArrayLike, first: ArrayLike, records: float
) -> Quadratic:
    """Sigmoid cross-entropy of K outputs, to order two, from A, B, s and n.

    f(W) = n K log 2 + sum_k (s/2 - B_k) . w_k + w_k^T A w_k / 8.

    **Guarantee** f is above the true loss, by at most n K r^4 / 192 where all |z| <= r; keep W
    within `bound_weights(W, r)` to make that so.

    Eqs. 24 and 25 of adaptive-laplace-mechanism (without the misprinted minus), eq. 8 of
    deep-private-auto-encoder.
    """
    a, b = np.asarray(gram, dtype=np.float64), np.asarray(cross, dtype=np.float64)
    s = np.asarray(first, dtype=np.float64)
    constant = _check.finite("records", records) * b.shape[1] * math.log(2.0)
    return Quadratic(curvature=a / 4.0, linear=s[:, None] / 2.0 - b, constant=constant)


def squared_error(*, gram: ArrayLike, cross: ArrayLike, squares: float = 0.0) -> Quadratic:
    """sum ||y - W^T h||^2, exactly, from A, B and sum ||y||^2 (which moves no minimum)."""
    a, b = np.asarray(gram, dtype=np.float64), np.asarray(cross, dtype=np.float64)
    return Quadratic(curvature=2.0 * a, linear=-2.0 * b, constant=_check.finite("squares", squares))


def bound_weights(weights: ArrayLike, radius: float) -> Array:
    """Columns of W scaled down to length `radius`, so that |z| <= radius for every ||h|| <= 1.

    >>> bound_weights(np.array([[3.0], [4.0]]), 1.0).ravel().round(2).tolist()
    [0.6, 0.8]
    """
    w, r = np.asarray(weights, dtype=np.float64), _check.positive("radius", radius)
    lengths = np.linalg.norm(w, axis=0, keepdims=True)
    return np.asarray(w * np.minimum(1.0, r / np.maximum(lengths, 1e-300)))
