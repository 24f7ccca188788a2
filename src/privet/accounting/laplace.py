"""The exact privacy loss of releases with Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privet.accounting import privacy_loss_histograms as pld
from privet.accounting.privacy_loss import ROUNDOFF, Array, Direction
from privet.accounting.privacy_loss_histograms import LossHistogram
from privet.accounting.pure_and_approximate_dp import (
    FIRST_ORDER_LIMIT,
    SMALL_ROUNDINGS,
    RepeatedLoss,
    complex_log1p,
)


def laplace_log_mgf(z: Array, e: float | Array) -> tuple[Array, Array]:
    """log of ((z+1) e^(z e) + z e^(-(z+1) e)) / (2 z + 1), and its error.

    With g(y) = e^y - 1 - y the ratio is 1 + ((z+1) g(z e) + z g(-(z+1) e)) / (2 z + 1), since the
    terms of first order cancel; g by its series where y is small.
    """
    near = np.abs(z + 1.0) * e <= FIRST_ORDER_LIMIT
    low, high = np.where(near, z, 0.0) * e, np.where(near, -(z + 1.0), 0.0) * e
    x = ((z + 1.0) * _beyond_first_order(low) + z * _beyond_first_order(high)) / (2.0 * z + 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        inner = ((z + 1.0) + z * np.exp(-(2.0 * z + 1.0) * e)) / (2.0 * z + 1.0)
        far = z * e + np.log(np.where(near, 1.0, inner))
        # eight roundings of each exponent, and of a quotient and logarithms
        rough = 8.0 * ROUNDOFF * (4.0 + np.abs(z) * e) / np.minimum(np.abs(inner), 1.0)
    return np.where(near, complex_log1p(x), far), np.where(near, SMALL_ROUNDINGS * np.abs(x), rough)


def _beyond_first_order(y: Array) -> Array:
    """e^y - 1 - y for |y| <= 1/2, by Horner's rule."""
    total = np.ones_like(y)
    for k in range(16, 2, -1):
        total = 1.0 + total * y / k
    return np.asarray(0.5 * y * y * total)


@dataclass(frozen=True, kw_only=True)
class Laplace(RepeatedLoss):
    """A release with Laplace noise, epsilon_each = L1 sensitivity / scale: less than `Pure`.

    The pair is Lap(0) against Lap(epsilon_each) in one dimension; by the lemma in
    docs/theory/losses.md it also dominates a vector release with the same L1 sensitivity.
    delta(t) = 1 - e^((t - epsilon)/2) for |t| <= epsilon.

    >>> round(Laplace(epsilon_each=1.0).delta(0.0), 6)
    0.393469
    """

    def _log_mgf_once(self, z: Array) -> tuple[Array, Array]:
        return laplace_log_mgf(z, self.epsilon_each)

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        return laplace_profile(np.asarray(epsilon, dtype=float), self.epsilon_each)

    def histogram(self, direction: Direction, ends: Array) -> LossHistogram:
        return pld.laplace_histogram(ends, 1.0, self.epsilon_each, 1)


def laplace_profile(t: Array, e: float | Array) -> Array:
    """delta of Lap(0) against Lap(e) at any real t."""
    between = -np.expm1(np.minimum(t - e, 0.0) / 2.0)
    return np.where(t > e, 0.0, np.where(t < -e, -np.expm1(np.minimum(t, 0.0)), between))
