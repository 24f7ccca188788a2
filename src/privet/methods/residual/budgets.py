"""What is left of the paper's theorems, and what a query really costs.

Symbols: R radius of the inputs, pi input noise, gamma block noise, M residual mappings; eta, B, a
floor of x~, bound of a mapping, bound of the last layer (Strategy II).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from privet import _check
from privet import loss as losses
from privet.guarantee import Adjacency
from privet.mechanisms import Gaussian
from privet.mechanisms.base import ratio_up

_ROUND_UP = 1.0 + 2.0**-40


@final
@dataclass(frozen=True, kw_only=True)
class NoisyInputBudget:
    """What is left of Theorem 1: all after the noisy input x + pi n is post-processing.

    Replacing a record within the ball of radius R moves x by at most 2R, and taking it out (a zero
    row stays in its place) by R: k = 2 or 1 radii. One draw is a Gaussian release with mu = k R /
    pi, and E of them (one an epoch and member, unless they share) cost
        mu = k R sqrt(E) / pi.
    gamma does not appear: block noise is drawn after the input noise and proves nothing more.

    **Guarantee** `loss`, exact, for the features of a record (labels need an account of their
    own). `dimension` counts the coordinates, whose rounding to the grid widens k R a little.

    >>> NoisyInputBudget(radius=30.0, input_noise=0.25, draws=100, dimension=7500).loss().mu
    2400.0...

    Balle and Wang (2018), theorem 8; Dong, Roth and Su (2019) for the composition.
    """

    radius: float
    input_noise: float
    draws: int = 1
    dimension: int
    radii: int = 2
    """k, how many radii a neighbour moves a row by."""

    def __post_init__(self) -> None:
        _check.positive("radius", self.radius)
        _check.count("draws", self.draws)

    @property
    def moved(self) -> float:
        """How far a neighbour moves one row."""
        return self.radii * self.radius

    @property
    def mechanism(self) -> Gaussian:
        """The mechanism of one draw."""
        return Gaussian(scale=self.input_noise)

    def loss(self, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> losses.Gaussian:
        """What all draws cost together."""
        one = self.mechanism.loss(self.moved, adjacency=adjacency, dimension=self.dimension)
        return one if self.draws == 1 else one.repeat(self.draws)


@final
@dataclass(frozen=True, kw_only=True)
class QueryBudget:
    """What one answer of a Strategy II model really costs.

    Given x^i, two training sets move x^{i+1} by at most 2B in L2 while each coordinate has noise of
    at least gamma eta; the last layer moves by 2 a ||x^M|| under noise pi ||x^M||. As M + 1
    adaptive Gaussian releases,
        mu = 2 sqrt(M B^2 / (gamma eta)^2 + a^2 / pi^2),
    and k answers cost sqrt(k) mu.

    **Guarantee** for any two training sets, however different: a fortiori for neighbours.

    **Assumes** what `privet.methods.residual.served` enforces: mappings clipped to B, ||W|| <= a,
    nothing else trained.

    >>> QueryBudget(mappings=4, bound=1.0, floor=1.0, gamma=4.0, last=1.0, output_noise=4.0).mu
    1.118...
    """

    mappings: int
    bound: float
    floor: float
    gamma: float
    last: float
    output_noise: float

    def __post_init__(self) -> None:
        _check.count("mappings", self.mappings)
        for name in ("bound", "floor", "gamma", "last", "output_noise"):
            _check.positive(name, getattr(self, name))

    @property
    def mu(self) -> float:
        """Of one answer."""
        block = ratio_up(self.bound * _ROUND_UP, self.gamma * self.floor)
        head = ratio_up(self.last * _ROUND_UP, self.output_noise)
        return 2.0 * math.sqrt(self.mappings * block**2 + head**2) * _ROUND_UP

    def loss(
        self, queries: int = 1, *, adjacency: Adjacency = Adjacency.ADD_REMOVE
    ) -> losses.Gaussian:
        """What so many answers cost."""
        one = losses.Gaussian(mu=self.mu, adjacency=adjacency)
        return one.repeat(_check.count("queries", queries))
