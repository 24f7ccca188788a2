"""Gaussian noise: real numbers on a grid, and exactly on the integers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet import accounting as losses
from privet.guarantee import Adjacency
from privet.mechanisms import log_density_ratio
from privet.mechanisms.mechanism import (
    ADD_REMOVE,
    DiscreteMechanism,
    GridMechanism,
    Norm,
    Values,
    bare_sensitivity,
    float64_at_least,
    ratio_up,
)
from privet.noise import Source
from privet.sensitivity import BoundedValue


@final
@dataclass(frozen=True, kw_only=True)
class GaussianMechanism(GridMechanism):
    """Add N(0, scale^2) to every coordinate, on the public grid of `privet.noise.grid`.

    With Delta the L2 sensitivity of the rounded value and mu = Delta / scale, the release is
    (epsilon, delta)-private exactly when Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    <= delta.

    **Guarantee** `loss(...)`, for the rounded value: rounding widens Delta by at most sqrt(d) 2^-26
    scale.

    The noise is a real normal draw rounded to the grid, sampled exactly (docs/theory/noise.md), so
    the release is post-processing of the mechanism with real noise.

    >>> from privet.sensitivity import clip_l2
    >>> total = clip_l2([[3.0, 4.0]], 1.0).sum()
    >>> mechanism = GaussianMechanism.for_budget(total, epsilon=1.0, delta=1e-5)
    >>> round(mechanism.scale, 4)
    3.7306
    >>> mechanism.guarantee(total, delta=1e-5).epsilon <= 1.0
    True

    Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), theorem 8.
    """

    norm: ClassVar[Norm] = "l2"
    theorem: ClassVar[str] = "exact Gaussian mechanism (Balle and Wang 2018, theorem 8) on a grid"

    def log_ratio(self, out: Values, first: Values, second: Values) -> float:
        return log_density_ratio.gaussian_log_ratio(out, first, second, scale=self.scale)

    def loss(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> losses.Gaussian:
        delta = self.sensitivity(of, adjacency=adjacency, dimension=dimension)
        return losses.Gaussian(mu=ratio_up(delta, self.scale), adjacency=adjacency)

    def _units(self, shape: tuple[int, ...], rng: Source) -> NDArray[np.int64]:
        return rng.gaussian_on_grid(shape, self.scale)

    @classmethod
    def for_budget(
        cls,
        of: BoundedValue | float,
        *,
        epsilon: float,
        delta: float,
        adjacency: Adjacency = ADD_REMOVE,
        dimension: int = 1,
    ) -> GaussianMechanism:
        """The least noise that is (epsilon, delta)-private for this value or sensitivity."""
        mu = losses.gaussian_mu(epsilon, delta)
        found = cls._least(of, ratio=mu, adjacency=adjacency, dimension=dimension)
        wider = 2.0**-52  # one unit in the last place, then two, four ...
        while found.loss(of, adjacency=adjacency, dimension=dimension).epsilon(delta) > epsilon:
            found = cls(scale=found.scale * (1.0 + wider))  # sensitivity / scale was rounded up
            wider *= 2.0
        return found

    @classmethod
    def for_mu(
        cls,
        of: BoundedValue | float,
        *,
        mu: float,
        adjacency: Adjacency = ADD_REMOVE,
        dimension: int = 1,
    ) -> GaussianMechanism:
        """The least noise with sensitivity / scale at most mu."""
        ratio = _check.positive("mu", mu)
        return cls._least(of, ratio=ratio, adjacency=adjacency, dimension=dimension)


@final
@dataclass(frozen=True, kw_only=True)
class DiscreteGaussianMechanism(DiscreteMechanism):
    """Add exact discrete Gaussian noise on the multiples of `step`: no floating-point assumption.

    The value is rounded to multiples of the step; P[noise = k step] is proportional to
    e^(-k^2 step^2 / (2 scale^2)).

    **Guarantee** rho-zCDP with rho = Delta^2 / (2 scale^2), Delta the L2 sensitivity of the rounded
    value.

    >>> from privet.sensitivity import count
    >>> from privet.noise import seeded
    >>> float(DiscreteGaussianMechanism(scale=2.0).release(count([True] * 9), rng=seeded(0))) % 1.0
    0.0

    Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), theorems 4
    and 14.
    """

    norm: ClassVar[Norm] = "l2"
    theorem: ClassVar[str] = (
        "discrete Gaussian mechanism (Canonne, Kamath and Steinke 2020, theorems 4 and 14)"
    )

    def log_ratio(self, out: Values, first: Values, second: Values) -> float:
        return log_density_ratio.gaussian_log_ratio(out, first, second, scale=self.scale)

    def loss(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> losses.ZCDP:
        delta = self.sensitivity(of, adjacency=adjacency, dimension=dimension)
        rho = (Fraction(delta) / Fraction(self.scale)) ** 2 / 2
        return losses.ZCDP(rho=float64_at_least(rho), adjacency=adjacency)

    def _units(self, shape: tuple[int, ...], rng: Source) -> NDArray[np.int64]:
        return rng.discrete_gaussian(shape, self._ratio())

    @classmethod
    def for_budget(
        cls,
        of: BoundedValue | float,
        *,
        epsilon: float,
        delta: float,
        step: float = 1.0,
        adjacency: Adjacency = ADD_REMOVE,
        dimension: int = 1,
    ) -> DiscreteGaussianMechanism:
        """The least noise, to one part in 10^9, whose stated loss is (epsilon, delta)-private."""
        epsilon, delta = _check.positive("epsilon", epsilon), _check.open_unit("delta", delta)
        bare_sensitivity(of, adjacency, "l2")

        def enough(scale: float) -> bool:
            own = cls(scale=scale, step=step)
            return own.loss(of, adjacency=adjacency, dimension=dimension).epsilon(delta) <= epsilon

        high = step
        while not enough(high):
            high *= 2.0
        low = high / 2.0
        while enough(low):
            low, high = low / 2.0, low
        while high - low > 1e-9 * high:
            middle = (low + high) / 2.0
            low, high = (low, middle) if enough(middle) else (middle, high)
        return cls(scale=high, step=step)
