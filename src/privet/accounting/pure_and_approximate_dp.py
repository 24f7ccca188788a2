"""Losses known by a number: pure epsilon, Laplace noise, (epsilon, delta), zCDP."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from privet import _check
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.loss import intervals
from privet.loss.base import Array, Direction, Part, Quadrature
from privet.loss.gaussian import Gaussian
from privet.loss.intervals import Intervals

MOST = 10**30
"""So many repetitions can be counted."""
_SMALL = 0.5


def _log1p(x: Array) -> Array:
    """log(1 + x), complex too, to a few roundings of |x| where that is small (numpy's is not)."""
    if not np.iscomplexobj(x):
        return np.asarray(np.log1p(x))
    out = np.empty_like(x)
    out.real = 0.5 * np.log1p(x.real * (2.0 + x.real) + x.imag**2)
    out.imag = np.arctan2(x.imag, 1.0 + x.real)
    return out


def response_log_mgf(z: Array, e: float | Array) -> tuple[Array, Array]:
    """log E[e^(z L)] of randomised response, cosh((z + 1/2) e) / cosh(e / 2), and its error.

    For small (z + 1) e it is log1p(2 sinh((z+1) e / 2) sinh(z e / 2) / cosh(e / 2)), so that a
    billion of billions of tiny losses still add up.
    """
    near = np.abs(z + 1.0) * e <= _SMALL
    y = np.where(near, z + 1.0, 0.0) * (0.5 * e)
    x = 2.0 * np.sinh(y) * np.sinh(np.where(near, z, 0.0) * (0.5 * e)) / np.cosh(0.5 * e)
    with np.errstate(over="ignore", invalid="ignore"):
        far = z * e - np.log1p(np.exp(-e)) + np.log1p(np.exp(-(2.0 * z + 1.0) * e))
        shrink = np.exp(np.minimum(np.real(z) * e - np.real(far), 700.0))
        rough = 2.0**-50 * (4.0 + np.abs(z) * e) * shrink
    return np.where(near, _log1p(x), far), np.where(near, 2.0**-47 * np.abs(x), rough)


def laplace_log_mgf(z: Array, e: float | Array) -> tuple[Array, Array]:
    """log of ((z+1) e^(z e) + z e^(-(z+1) e)) / (2 z + 1), and its error.

    With g(y) = e^y - 1 - y the ratio is 1 + ((z+1) g(z e) + z g(-(z+1) e)) / (2 z + 1), since the
    terms of first order cancel; g by its series where y is small.
    """
    near = np.abs(z + 1.0) * e <= _SMALL
    low, high = np.where(near, z, 0.0) * e, np.where(near, -(z + 1.0), 0.0) * e
    x = ((z + 1.0) * _beyond_first_order(low) + z * _beyond_first_order(high)) / (2.0 * z + 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        inner = ((z + 1.0) + z * np.exp(-(2.0 * z + 1.0) * e)) / (2.0 * z + 1.0)
        far = z * e + np.log(np.where(near, 1.0, inner))
        rough = 2.0**-50 * (4.0 + np.abs(z) * e) / np.minimum(np.abs(inner), 1.0)
    return np.where(near, _log1p(x), far), np.where(near, 2.0**-47 * np.abs(x), rough)


def _beyond_first_order(y: Array) -> Array:
    """e^y - 1 - y for |y| <= 1/2, by Horner's rule."""
    total = np.ones_like(y)
    for k in range(16, 2, -1):
        total = 1.0 + total * y / k
    return np.asarray(0.5 * y * y * total)


@dataclass(frozen=True, kw_only=True)
class _Repeated(Part):
    """A symmetric elementary loss of at most `epsilon_each`, occurring `times` times."""

    epsilon_each: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    times: int = 1

    def __post_init__(self) -> None:
        _check.non_negative("epsilon", self.epsilon_each)
        if _check.count("times", self.times) > MOST:
            raise InvalidArgument("times", self.times, f"at most {MOST:g}")

    @abstractmethod
    def _log_mgf_once(self, z: Array) -> tuple[Array, Array]:
        """log E[e^(z L)] of one release and a bound of its error, tiny where the value is."""

    def merge(self, other: Part) -> Part | None:
        if type(other) is type(self) and replace(other, times=self.times) == self:
            return replace(self, times=self.times + other.times)
        return None

    def repeat(self, times: int) -> Self:
        return replace(self, times=self.times * _check.count("times", times))

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def releases(self) -> int:
        return self.times

    def singles(self) -> list[tuple[Part, int]]:
        return [(replace(self, times=1), self.times)]

    def supremum(self, direction: Direction) -> float:
        return self.times * self.epsilon_each

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        k, errors = self._log_mgf_once(np.asarray(orders, dtype=float))
        return np.asarray(float(self.times) * (k + errors) * (1.0 + 1e-15))

    def log_mgf_on(
        self, line: Quadrature, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array] | None:
        k, errors = self._log_mgf_once(line.points)
        times = float(self.times)
        return times * k, times * (errors + 2.0**-52 * np.abs(k))

    def fields(self) -> dict[str, Any]:
        return {"epsilon_each": self.epsilon_each, "times": self.times}


@dataclass(frozen=True, kw_only=True)
class Pure(_Repeated):
    """A release that is epsilon-private with delta = 0, about which nothing else is known.

    Its dominating pair is randomised response: L = +-epsilon with odds e^epsilon (Kairouz, Oh and
    Viswanath 2015), so many of them compose exactly to far less than the sum at any delta > 0.

    >>> once = Pure(epsilon_each=0.5)
    >>> (once + once).epsilon(0.0)
    1.0
    """

    def _log_mgf_once(self, z: Array) -> tuple[Array, Array]:
        return response_log_mgf(z, self.epsilon_each)

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        t, e = np.asarray(epsilon, dtype=float), self.epsilon_each
        between = (1.0 - np.exp(np.minimum(t - e, 0.0))) / (1.0 + math.exp(-e))
        return np.where(t > e, 0.0, np.where(t < -e, -np.expm1(np.minimum(t, 0.0)), between))

    def intervals(self, direction: Direction, ends: Array) -> Intervals:
        e = self.epsilon_each
        high = 1.0 / (1.0 + math.exp(-e))
        atoms = [(-e, high * math.exp(-e)), (e, high)]
        return intervals.with_atoms(intervals.nothing(ends), ends, atoms)


@dataclass(frozen=True, kw_only=True)
class Laplace(_Repeated):
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

    def intervals(self, direction: Direction, ends: Array) -> Intervals:
        return intervals.laplace(ends, 1.0, self.epsilon_each, 1)


def laplace_profile(t: Array, e: float | Array) -> Array:
    """delta of Lap(0) against Lap(e) at any real t."""
    between = -np.expm1(np.minimum(t - e, 0.0) / 2.0)
    return np.where(t > e, 0.0, np.where(t < -e, -np.expm1(np.minimum(t, 0.0)), between))


@dataclass(frozen=True, kw_only=True)
class ApproximateDP(_Repeated):
    """A release known to be (epsilon, delta)-private: with probability delta anything happens."""

    delta_each: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.delta_or_zero("delta", self.delta_each)

    @property
    def failure(self) -> float:
        survive = (
            float(self.times) * math.log1p(-self.delta_each) if self.delta_each < 1 else -math.inf
        )
        return min(1.0, -math.expm1(survive) * (1.0 + 1e-15))

    def _log_mgf_once(self, z: Array) -> tuple[Array, Array]:
        return response_log_mgf(z, self.epsilon_each)

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        return Pure(epsilon_each=self.epsilon_each).profile(epsilon, direction)

    def intervals(self, direction: Direction, ends: Array) -> Intervals:
        return Pure(epsilon_each=self.epsilon_each).intervals(direction, ends)

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "delta_each": self.delta_each}


@dataclass(frozen=True, kw_only=True)
class ZCDP(Part):
    """A release known to be rho-zCDP: E[e^(t L)] <= e^(rho t (t + 1)) for all t > 0.

    Bun and Steinke 2016. Known only at real orders, so sums that contain one are bounded by their
    Renyi curve.

    >>> ZCDP(rho=0.5).epsilon(1e-6) > ZCDP(rho=0.25).epsilon(1e-6)
    True
    """

    rho: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        _check.non_negative("rho", self.rho)

    def merge(self, other: Part) -> Part | None:
        if isinstance(other, ZCDP):
            return replace(self, rho=self.rho + other.rho)
        return None

    def repeat(self, times: int) -> ZCDP:
        return replace(self, rho=self.rho * _check.count("times", times))

    @property
    def symmetric(self) -> bool:
        return True

    def supremum(self, direction: Direction) -> float:
        return math.inf if self.rho > 0 else 0.0

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        return self.rho * orders * (orders + 1.0)

    def log_mgf_on(
        self, line: Quadrature, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array] | None:
        return None

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        return None

    def intervals(self, direction: Direction, ends: Array) -> Intervals | None:
        return None

    def dominated(self) -> Part:
        """The Gaussian release that is rho-zCDP and no better."""
        return Gaussian(mu=math.sqrt(2.0 * self.rho) * (1.0 - 1e-15), adjacency=self.adjacency)

    def fields(self) -> dict[str, Any]:
        return {"rho": self.rho}
