"""Losses known by a number: pure epsilon, Laplace noise, (epsilon, delta), zCDP."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from privet import _check
from privet.guarantee import Adjacency
from privet.loss import intervals
from privet.loss.base import Array, Direction, Part, Quadrature
from privet.loss.intervals import Intervals


@dataclass(frozen=True, kw_only=True)
class _Repeated(Part):
    """A symmetric elementary loss of at most `epsilon_each`, occurring `times` times."""

    epsilon_each: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    times: int = 1

    def __post_init__(self) -> None:
        _check.non_negative("epsilon", self.epsilon_each)
        _check.count("times", self.times)

    @abstractmethod
    def _log_mgf_once(self, z: Array) -> Array: ...

    def merge(self, other: Part) -> Part | None:
        if type(other) is type(self) and replace(other, times=self.times) == self:
            return replace(self, times=self.times + other.times)
        return None

    def repeat(self, times: int) -> Self:
        return replace(self, times=self.times * times)

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
        return self.times * self._log_mgf_once(np.asarray(orders, dtype=float))

    def log_mgf_on(
        self, line: Quadrature, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array] | None:
        k = self.times * self._log_mgf_once(line.points)
        shrink = np.exp(np.minimum(k[0].real - k.real, 700.0) / self.times)
        return k, self.times * (8.0 + line.frequencies * self.epsilon_each) * 2.3e-16 * shrink

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

    def _log_mgf_once(self, z: Array) -> Array:
        e = self.epsilon_each
        # log((e^e e^(z e) + e^(-z e)) / (1 + e^e)), scaled by its larger term
        return z * e - math.log1p(math.exp(-e)) + np.log1p(np.exp(-(2.0 * z + 1.0) * e))

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

    def _log_mgf_once(self, z: Array) -> Array:
        e = self.epsilon_each
        # ((z+1) e^(z e) + z e^(-(z+1) e)) / (2 z + 1), scaled by e^(z e)
        inner = ((z + 1.0) + z * np.exp(-(2.0 * z + 1.0) * e)) / (2.0 * z + 1.0)
        return np.asarray(z * e + np.log(inner))

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
        return -math.expm1(self.times * math.log1p(-self.delta_each))

    def _log_mgf_once(self, z: Array) -> Array:
        return Pure(epsilon_each=self.epsilon_each)._log_mgf_once(z)

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
        return replace(self, rho=self.rho * times)

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def releases(self) -> int:
        return 1

    def singles(self) -> list[tuple[Part, int]]:
        return [(self, 1)]

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

    def fields(self) -> dict[str, Any]:
        return {"rho": self.rho}
