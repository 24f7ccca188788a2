"""Losses of which only epsilon, or (epsilon, delta), is known."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from privet import _check
from privet.accounting import privacy_loss_histograms as pld
from privet.accounting.privacy_loss import (
    FEW_ROUNDINGS,
    LARGEST_EXPONENT,
    ROUNDOFF,
    Array,
    Direction,
    LossPart,
    VerticalLine,
)
from privet.accounting.privacy_loss_histograms import LossHistogram
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency

MOST = 10**30
"""So many repetitions can be counted: a float holds them, and nobody makes as many."""
SMALL_ROUNDINGS = 2.0**-47
"""64 roundings, relatively, of a value that is tiny and free of cancellation; measured for epsilon
from 1e-10 to 30 and orders of up to 1000 in modulus: at most 0.18 of it."""
FIRST_ORDER_LIMIT = 0.5
"""Up to this |z + 1| e the terms of first order are cancelled by formulas and a series, whose 14
terms err by less than 1e-18; beyond it they are small beside the rest."""


def complex_log1p(x: Array) -> Array:
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
    near = np.abs(z + 1.0) * e <= FIRST_ORDER_LIMIT
    y = np.where(near, z + 1.0, 0.0) * (0.5 * e)
    x = 2.0 * np.sinh(y) * np.sinh(np.where(near, z, 0.0) * (0.5 * e)) / np.cosh(0.5 * e)
    with np.errstate(over="ignore", invalid="ignore"):
        far = z * e - np.log1p(np.exp(-e)) + np.log1p(np.exp(-(2.0 * z + 1.0) * e))
        shrink = np.exp(np.minimum(np.real(z) * e - np.real(far), LARGEST_EXPONENT))
        # eight roundings of each exponent, and of logarithms and a sum
        rough = 8.0 * ROUNDOFF * (4.0 + np.abs(z) * e) * shrink
    return np.where(near, complex_log1p(x), far), np.where(near, SMALL_ROUNDINGS * np.abs(x), rough)


@dataclass(frozen=True, kw_only=True)
class RepeatedLoss(LossPart):
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

    def merge(self, other: LossPart) -> LossPart | None:
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

    def elementary_releases(self) -> list[tuple[LossPart, int]]:
        return [(replace(self, times=1), self.times)]

    def supremum(self, direction: Direction) -> float:
        return self.times * self.epsilon_each

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        k, errors = self._log_mgf_once(np.asarray(orders, dtype=float))
        return np.asarray(float(self.times) * (k + errors) * (1.0 + FEW_ROUNDINGS))

    def log_mgf_on(
        self, line: VerticalLine, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array] | None:
        k, errors = self._log_mgf_once(line.points)
        times = float(self.times)
        return times * k, times * (errors + 2.0 * ROUNDOFF * np.abs(k))

    def fields(self) -> dict[str, Any]:
        return {"epsilon_each": self.epsilon_each, "times": self.times}


@dataclass(frozen=True, kw_only=True)
class Pure(RepeatedLoss):
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

    def histogram(self, direction: Direction, ends: Array) -> LossHistogram:
        e = self.epsilon_each
        high = 1.0 / (1.0 + math.exp(-e))
        atoms = [(-e, high * math.exp(-e)), (e, high)]
        return pld.add_atoms(pld.empty_histogram(ends), ends, atoms)


@dataclass(frozen=True, kw_only=True)
class ApproximateDP(RepeatedLoss):
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
        return min(1.0, -math.expm1(survive) * (1.0 + FEW_ROUNDINGS))

    def _log_mgf_once(self, z: Array) -> tuple[Array, Array]:
        return response_log_mgf(z, self.epsilon_each)

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        return Pure(epsilon_each=self.epsilon_each).profile(epsilon, direction)

    def histogram(self, direction: Direction, ends: Array) -> LossHistogram:
        return Pure(epsilon_each=self.epsilon_each).histogram(direction, ends)

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "delta_each": self.delta_each}
