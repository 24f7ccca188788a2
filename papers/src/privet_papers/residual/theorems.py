"""What the paper's theorems say of privacy, as numbers.

Symbols: R radius of the inputs, G bound of the residual mappings' means, pi input noise, gamma
block noise, T iterations, b batch size, N records, M residual mappings; eta, B, a floor of x~,
bound of a mapping, bound of the last layer (Strategy II); L = log(1/delta).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Backing, Guarantee, Premise, Standing, Unit
from privet.methods.noisy_inputs import QueryCost
from privet_papers.argument_checks import check_counts, check_positive


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
        check_positive(
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
        check_counts(mappings=mappings)
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
                premises.doubtful_premise(
                    "block", "the sum x + phi(Ux) of every block is normal (false behind a ReLU)"
                ),
                premises.doubtful_premise("mean", f"its mean is no longer than {self.bound:g}"),
                premises.doubtful_premise(
                    "labels", "labels are public: the proof replaces inputs only"
                ),
                premises.held_by_code("uses", "each record is used T b / N times"),
                premises.held_by_code("draws", "noise is new at every use"),
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
        check_counts(mappings=self.mappings)
        check_positive(
            bound=self.bound, floor=self.floor, gamma=self.gamma, last=self.last,
            input_noise=self.input_noise,
        )  # fmt: skip

    @classmethod
    def of(cls, budget: QueryCost) -> TheoremTwo:
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
        """The Renyi divergence of order alpha is alpha rho, as for Theorem 1."""
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
                premises.doubtful_premise(
                    "mappings", f"every residual mapping is no longer than {self.bound:g}"
                ),
                premises.doubtful_premise(
                    "last layer", f"the last layer is no longer than {self.last:g}"
                ),
                premises.doubtful_premise(
                    "training", "nothing but residual mappings and the last layer was trained"
                ),
                premises.doubtful_premise(
                    "queries", "one query is made, ever: repeated answers average the noise away"
                ),
                premises.doubtful_premise("shares", "M + 1 layers fit into M shares"),
            ),
        )


@final
@dataclass(frozen=True, kw_only=True)
class TheoremThree:
    """Rademacher complexities of the ODE's class F and of the SDE's class G, and the bound.

    With dx = U x dt, ||U|| <= c, outputs w x^p(T), ||w|| <= c and 0 < p < 1,
        R(F) = (c / N) e^(c T p) E||sum_i s_i x_i^p||,    R(G) = R(F) e^(-p (1 - p) gamma^2 T / 2),
    s_i fair signs. Then, for a loss in [0, B] that is Lipschitz with constant 1, with probability
    1 - delta over samples (lemma 5),
        risk <= empirical risk + 2 B R + 3 B sqrt(log(2 / delta) / (2 N)).

    **Guarantee** the ratio R(G) / R(F) is exact for one Brownian motion common to all coordinates:
    E[y^p(T)] = e^(-p (1 - p) gamma^2 T / 2) x^p(T).

    **Assumes** (as the paper) that powers of coordinates commute with the flow, which is so for
    diagonal U only; the class is linear inside, so this speaks of no network in use. The numbers
    read the records: they are for the owner of the data, not for release.

    >>> bound = TheoremThree(gamma=1.0)
    >>> round(bound.factor, 4)
    0.8825
    >>> x = np.random.default_rng(0).uniform(size=(200, 5))
    >>> f, g = bound.complexities(x)
    >>> g < f, round(g / f, 4)
    (True, 0.8825)

    residual-perturbation, Theorem 3, lemmas 5 and 6, section V-C.
    """

    gamma: float
    power: float = 0.5
    norm: float = 1.0
    """c, the bound of w and of U."""
    time: float = 1.0

    def __post_init__(self) -> None:
        check_positive(norm=self.norm, time=self.time)
        if not (self.gamma >= 0.0 and 0.0 < self.power < 1.0):
            found = (self.gamma, self.power)
            raise InvalidArgument("gamma, power", found, "gamma at least 0, power in (0, 1)")

    @property
    def factor(self) -> float:
        """The ratio R(G) / R(F)."""
        return math.exp(-self.power * (1.0 - self.power) * self.gamma**2 * self.time / 2.0)

    def complexities(
        self, inputs: NDArray[Any], *, trials: int = 200, seed: int = 0
    ) -> tuple[float, float]:
        """(R(F), R(G)) for records with non-negative coordinates, signs averaged over trials."""
        x = np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
        if not len(x) or not np.isfinite(x).all() or (x < 0.0).any():
            raise InvalidArgument(
                "inputs", x.shape, "records with finite coordinates of at least 0, at least one",
                "x^p is not defined elsewhere: scale to [0, 1]",
            )  # fmt: skip
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(trials, len(x)))
        mean = float(np.linalg.norm(signs @ x**self.power, axis=1).mean())
        plain = self.norm / len(x) * math.exp(self.norm * self.time * self.power) * mean
        return plain, plain * self.factor

    def gap(
        self, complexity: float, records: int, *, delta: float = 0.05, largest_loss: float = 1.0
    ) -> float:
        """How far the risk may lie above the empirical risk, with probability 1 - delta."""
        spread = math.sqrt(math.log(2.0 / delta) / (2.0 * records))
        return 2.0 * largest_loss * complexity + 3.0 * largest_loss * spread
