"""K-norm noise for the Euclidean ball: pure epsilon at the price of an L2 sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet import accounting as losses
from privet.guarantee import Adjacency
from privet.mechanisms import log_density_ratio
from privet.mechanisms.mechanism import ADD_REMOVE, Norm, PureGridMechanism, Values, ratio_up
from privet.noise import Source
from privet.sensitivity import BoundedValue


@final
@dataclass(frozen=True, kw_only=True)
class KNormMechanism(PureGridMechanism):
    """Add noise of density proportional to e^(-||x||_2 / scale) in all D coordinates together.

    By the triangle inequality the densities at two values Delta apart differ by at most
    e^(Delta/scale). In polar coordinates the density is r^(D-1) e^(-r/scale) times a uniform
    direction: the radius is Gamma(D, scale), drawn as a sum of D exponentials, and the direction a
    normalised Gaussian vector. (Hardt and Talwar draw Gamma(D + 1) times a uniform point of the
    ball, which is the same law.)

    Each coordinate has variance (D + 1) scale^2. For the second moments of d features, where D is
    about d^2/2, that is half the variance of coordinate-wise Laplace noise at the same epsilon:
    the L1 sensitivity is about d/sqrt(2) times the L2 one, and a Laplace draw has variance 2
    scale^2.

    **Guarantee** epsilon = Delta / scale with delta = 0, Delta the L2 sensitivity of the rounded
    value. Rounding to the grid widens Delta by at most sqrt(D) 2^-26 scale.

    The noise is a real vector rounded to the grid, sampled exactly (`privet.noise.k_norm_noise`).

    >>> from privet.sensitivity import clip_l2
    >>> total = clip_l2([[3.0, 4.0]], 1.0).sum()
    >>> round(KNormMechanism(scale=2.0).guarantee(total).epsilon, 6)
    0.5

    Hardt and Talwar, "On the Geometry of Differential Privacy" (2010), section 4.
    """

    norm: ClassVar[Norm] = "l2"
    theorem: ClassVar[str] = (
        "K-norm mechanism of the L2 ball (Hardt and Talwar 2010, section 4) on a grid"
    )

    def standard_deviation(self, dimension: int) -> float:
        """That of one coordinate: E[r^2] / D = (D + 1) scale^2."""
        return self.scale * math.sqrt(_check.count("dimension", dimension) + 1.0)

    def log_ratio(self, out: Values, first: Values, second: Values) -> float:
        return log_density_ratio.norm_log_ratio(out, first, second, scale=self.scale)

    def loss(
        self, of: BoundedValue | float, *, adjacency: Adjacency = ADD_REMOVE, dimension: int = 1
    ) -> losses.Pure:
        delta = self.sensitivity(of, adjacency=adjacency, dimension=dimension)
        return losses.Pure(epsilon_each=ratio_up(delta, self.scale), adjacency=adjacency)

    def _units(self, shape: tuple[int, ...], rng: Source) -> NDArray[np.int64]:
        return rng.k_norm_on_grid(shape, self.scale)
