"""The likelihood ratio of a sampled release, 1 - q + q e^t, by its logarithm, and back."""

from __future__ import annotations

import math

import numpy as np

from privet.accounting.privacy_loss import LARGEST_EXPONENT, ROUNDOFF, Array

_FAR = 30.0
"""Beyond e^30 = 1e13 the formula for large t is taken, which cannot overflow; for rates below 1e-13
only where q e^t is above e, as log q and t cancel before that."""


def log_ratio(q: Array, t: Array) -> Array:
    """log(1 - q + q e^t), accurate for small q and for large t.

    >>> float(log_ratio(np.array(1e-12), np.array(0.5)))  # doctest: +ELLIPSIS
    6.487...e-13
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        far = np.clip(1.0 - np.log(q), _FAR, LARGEST_EXPONENT)
        middle = np.log1p(q * np.expm1(np.minimum(t, far)))
        left = np.log((1.0 - q) + q * np.exp(np.minimum(t, 0.0)))
        right = np.log(q) + t + np.log1p((1.0 - q) / q * np.exp(-np.maximum(t, far)))
    cancels = (t < -1.0) & (q > 0.5)  # where q (e^t - 1) is next to -1
    return np.where(q == 1.0, t, np.where(t >= far, right, np.where(cancels, left, middle)))


def inverse_log_ratio(epsilon: Array, q: float) -> Array:
    """The t with log(1 - q + q e^t) = epsilon; -inf where there is none."""
    with np.errstate(divide="ignore"):
        near = np.log1p(np.maximum(np.expm1(np.minimum(epsilon, _FAR)) / q, -1.0))
    far = epsilon - math.log(q) + np.log1p(-(1.0 - q) * np.exp(-np.maximum(epsilon, _FAR)))
    return np.where(epsilon > _FAR, far, near)


def log_ratio_and_slope(t: Array, q: float) -> tuple[Array, Array]:
    """log(1 - q + q e^t), and how much of an error of t it passes on."""
    value = log_ratio(np.array(q), t)
    return value, np.minimum(1.0, q + np.abs(value))


def log_ratio_error(ell: Array, q: Array, size: Array) -> Array:
    """A bound of the error of ell = log(1 - q + q e^t) where t is the result of sums of `size`.

    d ell / dt = q e^t / (1 - q + q e^t) <= min(1, q + |ell|): tiny losses keep their digits.
    """
    passed = np.minimum(1.0, q + np.abs(ell)) * size
    # 4 (the sums and products of t, and three functions of a rounding or two) and a margin;
    # measured for q from 1e-12 to 1: at most 0.18 of this
    return np.asarray(6.0 * ROUNDOFF * (np.abs(ell) + passed))
