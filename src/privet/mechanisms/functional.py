"""The functional mechanism: noise on the coefficients of a loss, once; solving costs nothing.

The coefficients (`privet.sensitivity.second_moments`) are one bounded vector, so any mechanism can
release it. What follows, a repaired matrix, a ridge, a closed form or ten thousand epochs, is
post-processing.

Zhang, Zhang, Xiao, Yang and Winslett, "Functional Mechanism: Regression Analysis under
Differential Privacy" (2012), whose L1 bound counts every coefficient at its largest; here the
sensitivities are those of the vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.mechanisms.gaussian import DiscreteGaussianMechanism, GaussianMechanism
from privet.mechanisms.k_norm import KNormMechanism
from privet.mechanisms.laplace import DiscreteLaplaceMechanism, LaplaceMechanism
from privet.mechanisms.mechanism import ADD_REMOVE, Mechanism, SupportsCharge, bare_sensitivity
from privet.noise import Source, grid
from privet.sensitivity import BoundedValue, MomentSum, Quadratic, cross_entropy, squared_error

Array = NDArray[np.float64]


class Noise(Enum):
    """Which noise goes on the coefficients."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    K_NORM = "k-norm"
    DISCRETE_GAUSSIAN = "discrete gaussian"
    DISCRETE_LAPLACE = "discrete laplace"


def mechanism_for(
    of: BoundedValue,
    *,
    noise: Noise,
    epsilon: float,
    delta: float = 0.0,
    adjacency: Adjacency = ADD_REMOVE,
) -> Mechanism:
    """The least noise of this kind that is (epsilon, delta)-private for this value.

    Gaussian kinds need delta > 0; the others are pure and ignore it. The discrete kinds work on a
    grid whose rounding adds less than one part in 500 to the sensitivity.

    >>> from privet.sensitivity import Moments, moments
    >>> total = moments([[0.6, 0.8]], of=Moments(features=2))
    >>> type(mechanism_for(total, noise=Noise.K_NORM, epsilon=1.0)).__name__
    'KNormMechanism'
    """
    match noise:
        case Noise.GAUSSIAN:
            return GaussianMechanism.for_budget(
                of, epsilon=epsilon, delta=delta, adjacency=adjacency
            )
        case Noise.LAPLACE:
            return LaplaceMechanism.for_budget(of, epsilon=epsilon, adjacency=adjacency)
        case Noise.K_NORM:
            return KNormMechanism.for_budget(of, epsilon=epsilon, adjacency=adjacency)
        case Noise.DISCRETE_GAUSSIAN:
            step = _step(of, adjacency, "l2", math.sqrt(of.dimension))
            return DiscreteGaussianMechanism.for_budget(
                of, epsilon=epsilon, delta=delta, step=step, adjacency=adjacency
            )
        case Noise.DISCRETE_LAPLACE:
            step = _step(of, adjacency, "l1", float(of.dimension))
            return DiscreteLaplaceMechanism.for_budget(
                of, epsilon=epsilon, step=step, adjacency=adjacency
            )


def _step(of: BoundedValue, adjacency: Adjacency, norm: str, size: float) -> float:
    # rounding `size` coordinates widens the sensitivity by a step each: by 1/512 of it at most
    return grid.power_of_two_at_most(bare_sensitivity(of, adjacency, norm) / (512.0 * size))


def standard_deviation(mechanism: Mechanism, dimension: int) -> float:
    """The standard deviation that a mechanism adds to one of `dimension` coordinates."""
    if isinstance(mechanism, GaussianMechanism | DiscreteGaussianMechanism):
        return mechanism.scale
    if isinstance(mechanism, LaplaceMechanism | DiscreteLaplaceMechanism):
        return math.sqrt(2.0) * mechanism.scale
    if isinstance(mechanism, KNormMechanism):
        return mechanism.standard_deviation(dimension)
    raise InvalidArgument("mechanism", mechanism, "one of privet.mechanisms for real vectors")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """Released moments: noisy sums of h h^T and h y^T, and how noisy they are (a public fact)."""

    gram: Array = field(repr=False)
    cross: Array = field(repr=False)
    gram_noise: float
    """Standard deviation of a diagonal entry; off the diagonal it is 1/sqrt(2) of that."""
    cross_noise: float

    @property
    def ridge(self) -> float:
        """What noise adds to an eigenvalue, about: sqrt(2 d) times the noise off the diagonal.

        The largest eigenvalue of such a symmetric noise matrix tends to sqrt(2 d) gram_noise
        (Wigner), so a ridge of this size keeps the repaired matrix from having directions that are
        noise alone. From public facts: the dimension and the scale of the noise.
        """
        return math.sqrt(2.0 * len(self.gram)) * self.gram_noise

    def squared_error(self) -> Quadratic:
        """The least-squares loss with these coefficients."""
        return squared_error(gram=self.gram, cross=self.cross)

    def cross_entropy(self, *, first: Array, records: float) -> Quadratic:
        """The order-2 cross-entropy with these coefficients and (private or public) sum of h."""
        return cross_entropy(gram=self.gram, cross=self.cross, first=first, records=records)


def release_moments(
    total: MomentSum,
    mechanism: Mechanism,
    *,
    rng: Source,
    ledger: SupportsCharge | None = None,
    what: str = "",
    adjacency: Adjacency = ADD_REMOVE,
) -> Coefficients:
    """The coefficients with noise, charged before anything is drawn.

    **Guarantee** `mechanism.guarantee(total.bounded(), ...)`.

    >>> from privet.sensitivity import Moments
    >>> from privet.noise import seeded
    >>> total = Moments(features=2, outputs=1).sum()
    >>> total.add([[1.0, 0.0]] * 1000, [0] * 1000)
    >>> mechanism = mechanism_for(total.bounded(), noise=Noise.GAUSSIAN, epsilon=1.0, delta=1e-5)
    >>> found = release_moments(total, mechanism, rng=seeded(0))
    >>> weights = found.squared_error().minimum(ridge=found.ridge)
    >>> bool(abs(weights[0, 0] - 1.0) < 0.1)
    True
    """
    shape, bounded = total.moments, total.bounded()
    noisy = mechanism.release(bounded, rng=rng, ledger=ledger, what=what, adjacency=adjacency)
    gram, cross = shape.unpack(noisy)
    sd = standard_deviation(mechanism, shape.dimension)
    return Coefficients(
        gram=gram,
        cross=cross,
        gram_noise=sd / shape.second if shape.second else 0.0,
        cross_noise=sd / shape.cross if shape.outputs else 0.0,
    )
