"""The loss of releases that are known to be rho-zCDP."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from privet import _check
from privet.accounting.gaussian import Gaussian
from privet.accounting.privacy_loss import (
    FEW_ROUNDINGS,
    Array,
    Direction,
    LossPart,
    VerticalLine,
)
from privet.accounting.privacy_loss_histograms import LossHistogram
from privet.guarantee import Adjacency


@dataclass(frozen=True, kw_only=True)
class ZCDP(LossPart):
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

    def merge(self, other: LossPart) -> LossPart | None:
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
        self, line: VerticalLine, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array] | None:
        return None

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        return None

    def histogram(self, direction: Direction, ends: Array) -> LossHistogram | None:
        return None

    def lower_bound(self) -> LossPart:
        """The Gaussian release that is rho-zCDP and no better."""
        return Gaussian(
            mu=math.sqrt(2.0 * self.rho) * (1.0 - FEW_ROUNDINGS), adjacency=self.adjacency
        )

    def fields(self) -> dict[str, Any]:
        return {"rho": self.rho}
