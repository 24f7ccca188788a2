"""The exact privacy of one Gaussian release, and of any number of them: mu^2 adds up.

A release of a value with L2 sensitivity D under noise N(0, s^2) is governed by mu = D / s alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import erfcx, log_ndtr, ndtr

from privet import _check
from privet._check import Checked, checked
from privet.accounting.privacy_loss import (
    FEW_ROUNDINGS,
    Array,
    Direction,
    LossPart,
    VerticalLine,
)
from privet.accounting.privacy_loss_histograms import (
    LOG_SQRT_2PI,
    GaussianMixturePair,
    LossHistogram,
)
from privet.guarantee import Adjacency

_NODES, _WEIGHTS = leggauss(24)
"""Integrates the slope of the Mills ratio, an entire function, over a length below 1: 16 points
already differ from 80 by the integrand's own rounding only (measured)."""
_GROW = 1.0 + 4e-16
"""Two units in the last place: the least step by which a root moves to the safe side."""


def _mills(x: Array) -> Array:
    """Q(x) / phi(x), the Mills ratio."""
    return np.asarray(math.sqrt(math.pi / 2.0) * erfcx(x / math.sqrt(2.0)))


def log_delta(mu: float, epsilon: float) -> float:
    """log of the exact delta of a Gaussian release, for any real epsilon.

    delta = Phi(a) - e^epsilon Phi(b), a = mu/2 - epsilon/mu, b = a - mu (Balle and Wang 2018).
    Since e^epsilon phi(b) = phi(a), it equals phi(a) (R(-a) - R(-b)) with the Mills ratio R. For
    mu < 1 the difference is integrated, R' = x R - 1, so that no digits cancel.

    >>> round(math.exp(log_delta(1.0, 1.0)), 6)
    0.126937
    """
    return float(log_deltas(mu, np.array([float(epsilon)]))[0])


def log_deltas(mu: float, epsilon: Array) -> Array:
    """`log_delta` at many epsilons."""
    e = np.asarray(epsilon, dtype=float)
    mu = max(mu, 1e-100) if mu > 0.0 else mu  # less would lose its digits; more is a bound
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if mu == 0.0:
            return np.where(e < 0, np.log(-np.expm1(np.minimum(e, 0.0))), -np.inf)
        a = mu / 2.0 - e / mu
        # the bulk: no cancellation to fear
        bulk = np.log(ndtr(a) - np.exp(np.minimum(e + log_ndtr(a - mu), 0.0)))
        # the tail: phi(a) (R(-a) - R(-a + mu))
        x = np.maximum(-a, -1.0)
        if mu < 1.0:
            s = x[..., None] + mu * 0.5 * (_NODES + 1.0)
            gap = 0.5 * mu * np.sum(_WEIGHTS * (1.0 - s * _mills(s)), axis=-1)
        else:
            gap = _mills(x) - _mills(x + mu)
        tail = -0.5 * a * a - LOG_SQRT_2PI + np.log(gap)
        # close to 1: delta = 1 - e^epsilon (1 - delta(-epsilon)); beyond 6 deviations
        # 1 - ndtr(a) = 1e-9 has lost half of its digits in the bulk
        if np.any(near := (e < 0) & (a > 6.0)):
            bulk = np.where(near, np.log1p(-np.exp(e) * -np.expm1(log_deltas(mu, np.abs(e)))), bulk)
    return np.asarray(np.where(a > 1.0, bulk, tail))


def _log_error(mu: float, epsilon: float) -> float:
    """Bound of the error of `log_delta`: roundings of a, times the slope of log Phi there.

    The slope is at most |a| + 1, and a is rounded by 2^-53 mu or less. For a small mu the
    logarithm is large by itself, and rounded as such.
    """
    # measured for mu from 1e-60 to 1e4: at most 0.86 of this
    mu = max(mu, 1e-100)
    a = mu / 2.0 - epsilon / mu
    if abs(a) >= 1e100:
        return math.inf
    slope = max(abs(a), 1.0) if mu > 1.0 else abs(a)
    logarithm = -math.log(mu) if mu < 1e-6 else 0.0
    return FEW_ROUNDINGS * (2.0 + a * a + slope * mu + logarithm)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta of a Gaussian release with ratio `mu` at `epsilon`."""
    _check.non_negative("mu", mu)
    _check.non_negative("epsilon", epsilon)
    value = math.exp(log_delta(mu, epsilon))
    return min(1.0, value * (1.0 + _log_error(mu, epsilon))) if value > 0.0 else 0.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon of a Gaussian release; rounded up, never down.

    >>> round(gaussian_epsilon(gaussian_mu(1.0, 1e-5), 1e-5), 9)
    1.0
    """
    return epsilon_of(_check.non_negative("mu", mu), _check.open_unit("delta", delta))


def epsilon_of(mu: float, delta: float) -> float:
    """`gaussian_epsilon` of numbers that are known to be right."""
    target = math.log(delta)
    if mu == 0.0 or log_delta(mu, 0.0) <= target:
        return 0.0
    if mu > 1e6:  # delta <= Phi(a) <= e^(-a^2/2), within 1e-6 of exact here
        return mu * (mu / 2.0 + math.sqrt(-2.0 * target))
    # log delta <= -a^2/2 for a < 0, so a = -sqrt(2 log 1/delta) is far enough
    high = mu * (mu / 2.0 + math.sqrt(-2.0 * target) + 1.0)
    root = _root(lambda e: log_delta(mu, e) - target, 0.0, high)
    return _nudge(root, _GROW, lambda e: log_delta(mu, e) + _log_error(mu, e) <= target)


@lru_cache(maxsize=256)  # a plan and a page ask for a few targets again and again
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu = sensitivity / noise that is (epsilon, delta)-private; rounded down.

    >>> round(gaussian_mu(8.0, 1e-3), 4), round(gaussian_mu(1.0, 1e-5), 4)
    (2.0833, 0.2681)
    """
    epsilon, delta = _check.positive("epsilon", epsilon), _check.open_unit("delta", delta)
    target = math.log(delta)
    high = 1.0
    while log_delta(high, epsilon) < target:
        high *= 2.0
    low = high / 2.0
    while log_delta(low, epsilon) > target:
        low /= 2.0
    root = _root(lambda m: target - log_delta(m, epsilon), low, high)
    return _nudge(root, 1.0 / _GROW, lambda m: epsilon_of(m, delta) <= epsilon)


def _root(
    f: Callable[[float], float], low: float, high: float, *, precision: float = 2e-15
) -> float:
    """The upper end of a tiny bracket of a zero of f: false position (Illinois), or halving.

    At the `precision` of 18 roundings f is rounding itself.
    """
    at_low, at_high = f(low), f(high)
    for i in range(200):  # every third halves: 66 of them, more than a float64 has digits
        if at_low == 0.0 or high - low <= precision * abs(high):
            break
        steep = at_high - at_low
        middle = (
            high - at_high * (high - low) / steep if steep and math.isfinite(steep) else math.nan
        )
        if i % 3 == 2 or not low < middle < high:
            middle = 0.5 * (low + high)
        value = f(middle)
        if (value > 0.0) == (at_high > 0.0):
            high, at_high, at_low = middle, value, 0.5 * at_low
        else:
            low, at_low, at_high = middle, value, 0.5 * at_high
        if value == 0.0:
            return middle
    return high


def _nudge(x: float, factor: float, safe: Callable[[float], bool]) -> float:
    """Move `x` by growing multiples of one rounding error until `safe` holds."""
    step = factor - 1.0
    while not safe(x):
        x *= 1.0 + step
        step *= 2.0
    return x


@dataclass(frozen=True, kw_only=True)
class Gaussian(Checked, LossPart):
    """The loss of Gaussian releases with sum of (sensitivity / noise)^2 equal to mu^2.

    **Guarantee**: exact for any number of adaptively chosen releases (Dong, Roth and Su 2019).
    **Assumes**: each sensitivity really bounds the change between neighbours (see
    `privet.sensitivity`).

    >>> total = Gaussian(mu=0.3) + Gaussian(mu=0.4)
    >>> round(total.epsilon(1e-5), 4)
    1.9931
    """

    mu: float = checked(_check.non_negative)
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def merge(self, other: LossPart) -> LossPart | None:
        if isinstance(other, Gaussian):
            return Gaussian(mu=math.hypot(self.mu, other.mu), adjacency=self.adjacency)
        return None

    def repeat(self, times: int) -> Gaussian:
        return Gaussian(
            mu=self.mu * math.sqrt(_check.count("times", times)), adjacency=self.adjacency
        )

    @property
    def symmetric(self) -> bool:
        return True

    def supremum(self, direction: Direction) -> float:
        return math.inf if self.mu > 0 else 0.0

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        return 0.5 * self.mu**2 * orders * (orders + 1.0)

    def log_mgf_on(
        self, line: VerticalLine, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array]:
        z = line.points
        k = 0.5 * self.mu**2 * z * (z + 1.0)
        return k, FEW_ROUNDINGS * np.abs(k)

    def profile(self, epsilon: Array, direction: Direction) -> Array:
        return np.exp(log_deltas(self.mu, np.atleast_1d(epsilon)))

    def histogram(self, direction: Direction, ends: Array) -> LossHistogram:
        line = GaussianMixturePair(left=self.mu, left_rate=1.0, right=0.0, right_rate=0.0)
        return line.histogram(ends, lambda e: e / self.mu + 0.5 * self.mu)

    def fields(self) -> dict[str, Any]:
        return {"mu": self.mu}
