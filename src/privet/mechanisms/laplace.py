"""Laplace noise: real numbers on a grid, and exactly on the integers."""

from __future__ import annotations

from dataclasses import dataclass
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
    Norm,
    PureGridMechanism,
    Values,
    bare_sensitivity,
    ratio_up,
)
from privet.noise import Source
from privet.sensitivity import BoundedValue


@final
@dataclass(frozen=True, kw_only=True)
class LaplaceMechanism(PureGridMechanism):
    """Add noise of density e^(-|x| / scale) / (2 scale) to every coordinate, on the public grid.

    **Guarantee** epsilon = Delta / scale with delta = 0, Delta the L1 sensitivity of the rounded
    value; delta(t) = 1 - e^((t - epsilon)/2) for 0 <= t <= epsilon. Rounding widens Delta by at
    most d 2^-26 scale.

    The noise is a real Laplace draw rounded to the grid, sampled exactly (docs/theory/noise.md), so
    the release is post-processing of the mechanism with real noise, and pure as that one is.

    >>> from privet.sensitivity import count
    >>> total = count([True, False, True])
    >>> LaplaceMechanism(scale=2.0).guarantee(total).epsilon
    0.5

    Dwork, McSherry, Nissim and Smith, "Calibrating Noise to Sensitivity in Private Data Analysis"
    (2006), proposition 1.
    """

    norm: ClassVar[Norm] = "l1"
    theorem: ClassVar[str] = (
        "Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006, proposition 1) on a grid"
    )

    def log_ratio(self, out: Values, first: Values, second: Values) -> float:
        return log_density_ratio.laplace_log_ratio(out, first, second, scale=self.scale)

    def loss(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> losses.Laplace:
        delta = self.sensitivity(of, adjacency=adjacency, dimension=dimension)
        return losses.Laplace(epsilon_each=ratio_up(delta, self.scale), adjacency=adjacency)

    def _units(self, shape: tuple[int, ...], rng: Source) -> NDArray[np.int64]:
        return rng.laplace_on_grid(shape, self.scale)


@final
@dataclass(frozen=True, kw_only=True)
class DiscreteLaplaceMechanism(DiscreteMechanism):
    """Add exact discrete Laplace noise on the multiples of `step`: no floating-point assumption.

    The value is rounded to multiples of the step; P[noise = k step] is proportional to e^(-|k| step
    / scale).

    **Guarantee** epsilon = Delta / scale with delta = 0, Delta the L1 sensitivity of the rounded
    value: the ratio of two probabilities is e^((|k'| - |k|) step / scale) a coordinate.

    >>> from privet.sensitivity import count
    >>> DiscreteLaplaceMechanism(scale=2.0).loss(count([True])).epsilon(0.0)
    0.5

    Ghosh, Roughgarden and Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms" (2009).
    """

    norm: ClassVar[Norm] = "l1"
    theorem: ClassVar[str] = "discrete Laplace mechanism (Ghosh, Roughgarden and Sundararajan 2009)"

    def log_ratio(self, out: Values, first: Values, second: Values) -> float:
        return log_density_ratio.laplace_log_ratio(out, first, second, scale=self.scale)

    def loss(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> losses.Pure:
        delta = self.sensitivity(of, adjacency=adjacency, dimension=dimension)
        return losses.Pure(epsilon_each=ratio_up(delta, self.scale), adjacency=adjacency)

    def _units(self, shape: tuple[int, ...], rng: Source) -> NDArray[np.int64]:
        return rng.discrete_laplace(shape, self._ratio())

    @classmethod
    def for_budget(
        cls,
        of: BoundedValue | float,
        *,
        epsilon: float,
        step: float = 1.0,
        adjacency: Adjacency = ADD_REMOVE,
        dimension: int = 1,
    ) -> DiscreteLaplaceMechanism:
        """The least noise that is epsilon-private for this value or sensitivity."""
        epsilon = _check.positive("epsilon", epsilon)
        bare_sensitivity(of, adjacency, "l1")
        any_scale = cls(scale=step, step=step)
        own = any_scale.sensitivity(of, adjacency=adjacency, dimension=dimension)
        return cls(scale=ratio_up(own, epsilon), step=step)
