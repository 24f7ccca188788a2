"""What the paper's theorems say of privacy, as numbers.

Symbols: R radius of the inputs, G bound of the residual mappings' means, pi input noise, gamma
block noise, T iterations, b batch size, N records, M residual mappings; eta, B, a floor of x~,
bound of a mapping, bound of the last layer (Strategy II); L = log(1/delta).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Backing, Guarantee, Premise, Standing, Unit
from privet.methods.residual import QueryBudget
from privet.papers.checks import counts, positive


def renyi_epsilon(rho: float, delta: float) -> float:
    """The least epsilon with some lambda and alpha such that rho alpha <= lambda epsilon.

    Both theorems ask for k alpha <= lambda epsilon with alpha = L / ((1 - lambda) epsilon) + 1.
    With s = (1 - lambda) epsilon that is epsilon >= rho + s + rho L / s; s = sqrt(rho L) is best:
        epsilon = rho + 2 sqrt(rho L).

    >>> renyi_epsilon(1.0, math.exp(-4.0))
    5.0
    """
    if not (0.0 <= rho < math.inf and 0.0 < delta < 1.0):
        raise InvalidArgument("rho, delta", (rho, delta), "rho at least 0 and delta in (0, 1)")
    return rho + 2.0 * math.sqrt(-rho * math.log(delta))


@final
@dataclass(frozen=True, kw_only=True)
class TheoremOne:
    """Strategy I as the paper states it: a claim, at the least epsilon that its conditions allow.

    pi > R sqrt(2 T b alpha / (N lambda epsilon)) and gamma > G sqrt(the same), solved for epsilon
    over lambda: rho = 2 (T b / N) max(R / pi, G / gamma)^2, epsilon = rho + 2 sqrt(rho L).

    The paper prints 1.1e3 for IDC (gamma = .5, pi = .25, R = G = 30, 100 epochs, delta = 1e-5):

    >>> idc = TheoremOne(radius=30.0, bound=30.0, gamma=0.5, input_noise=0.25, epochs=100)
    >>> f"{idc.epsilon(1e-5):.3g}"
    '2.89e+06'

    residual-perturbation, Theorem 1 and section V-A.
    """

    radius: float
    bound: float
    gamma: float
    input_noise: float
    epochs: float
    """T b / N, how often a record is used."""
    clipped: bool = False
    """Whether the code holds inputs within the radius."""

    def __post_init__(self) -> None:
        positive(
            radius=self.radius, bound=self.bound, gamma=self.gamma, input_noise=self.input_noise,
            epochs=self.epochs,
        )  # fmt: skip

    @property
    def rho(self) -> float:
        """The Renyi divergence of order alpha is alpha rho, says the theorem."""
        worst = max(self.radius / self.input_noise, self.bound / self.gamma)
        return 2.0 * self.epochs * worst**2

    def epsilon(self, delta: float) -> float:
        """The least epsilon for which the theorem speaks at all."""
        return renyi_epsilon(self.rho, delta)

    def by_layer(self, delta: float, mappings: int) -> tuple[float, ...]:
        """What the theorem states of U^0, ..., U^(M-1) and w, each by itself.

        (lambda / (i + 1) + (1 - lambda)) epsilon for U^i and the same with M + 1 for w, at the
        lambda that makes epsilon least: (1 - lambda) epsilon = sqrt(rho L).

        >>> t = TheoremOne(radius=1.0, bound=1.0, gamma=2.0, input_noise=2.0, epochs=2.0)
        >>> [round(e, 2) for e in t.by_layer(1e-5, 3)], round(t.epsilon(1e-5), 2)
        ([7.79, 5.59, 4.86, 4.49], 7.79)
        """
        counts(mappings=mappings)
        whole, rest = self.epsilon(delta), math.sqrt(-self.rho * math.log(delta))
        return tuple((whole - rest) / (i + 1) + rest for i in range(mappings + 1))

    def claim(self, delta: float) -> Guarantee:
        """The paper's statement with all that it rests on."""
        inputs = Backing.ENFORCED if self.clipped else Backing.ASSUMED
        return Guarantee(
            epsilon=self.epsilon(delta),
            delta=delta,
            adjacency=Adjacency.REPLACE_ONE,
            standing=Standing.CLAIMED,
            theorem="residual-perturbation, Theorem 1 (Strategy I)",
            premises=(
                Premise(
                    about="bound",
                    text=f"inputs lie in a ball of radius {self.radius:g}",
                    backing=inputs,
                ),
                premises.doubtful(
                    "block", "the sum x + phi(Ux) of every block is normal (false behind a ReLU)"
                ),
                premises.doubtful("mean", f"its mean is no longer than {self.bound:g}"),
                premises.doubtful("labels", "labels are public: the proof replaces inputs only"),
                premises.held("uses", "each record is used T b / N times"),
                premises.held("draws", "noise is new at every use"),
            ),
        )


@final
@dataclass(frozen=True, kw_only=True)
class TheoremTwo:
    """Strategy II as the paper states it, for one answer: a claim.

    gamma > (B / eta) sqrt(2 alpha M / (lambda epsilon)), pi > a sqrt(2 alpha M / (lambda epsilon)):
    rho = 2 M max(B / (eta gamma), a / pi)^2, epsilon = rho + 2 sqrt(rho L).

    The proof gives each of the M mappings *and* the last layer epsilon_p / M, which is (M + 1) / M
    of what there is; `mu` below counts all of them.

    >>> TheoremTwo(mappings=3, bound=1.0, floor=1.0, gamma=2.0, last=1.0, input_noise=2.0).rho
    1.5

    residual-perturbation, Theorem 2 and section V-B.
    """

    mappings: int
    bound: float
    floor: float
    gamma: float
    last: float
    input_noise: float
    """pi, here the noise of the last layer."""

    def __post_init__(self) -> None:
        counts(mappings=self.mappings)
        positive(
            bound=self.bound, floor=self.floor, gamma=self.gamma, last=self.last,
            input_noise=self.input_noise,
        )  # fmt: skip

    @classmethod
    def of(cls, budget: QueryBudget) -> TheoremTwo:
        """The theorem at the settings of a served model, whose output noise is its pi."""
        return cls(
            mappings=budget.mappings,
            bound=budget.bound,
            floor=budget.floor,
            gamma=budget.gamma,
            last=budget.last,
            input_noise=budget.output_noise,
        )

    @property
    def rho(self) -> float:
        """As for Theorem 1."""
        worst = max(self.bound / (self.floor * self.gamma), self.last / self.input_noise)
        return 2.0 * self.mappings * worst**2

    def epsilon(self, delta: float) -> float:
        """The least epsilon for which the theorem speaks."""
        return renyi_epsilon(self.rho, delta)

    def claim(self, delta: float) -> Guarantee:
        """The paper's statement with all that it rests on."""
        return Guarantee(
            epsilon=self.epsilon(delta),
            delta=delta,
            adjacency=Adjacency.REPLACE_ONE,
            unit=Unit.QUERY,
            standing=Standing.CLAIMED,
            theorem="residual-perturbation, Theorem 2 (Strategy II)",
            premises=(
                premises.doubtful(
                    "mappings", f"every residual mapping is no longer than {self.bound:g}"
                ),
                premises.doubtful("last layer", f"the last layer is no longer than {self.last:g}"),
                premises.doubtful(
                    "training", "nothing but residual mappings and the last layer was trained"
                ),
                premises.doubtful(
                    "queries", "one query is made, ever: repeated answers average the noise away"
                ),
                premises.doubtful("shares", "M + 1 layers fit into M shares"),
            ),
        )
