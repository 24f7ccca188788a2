"""Theorem 3 as a number: how much smaller multiplicative noise makes the generalisation bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.papers.checks import positive


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
        positive(norm=self.norm, time=self.time)
        if not (self.gamma >= 0.0 and 0.0 < self.power < 1.0):
            found = (self.gamma, self.power)
            raise InvalidArgument("gamma, power", found, "gamma at least 0, power in (0, 1)")

    @property
    def factor(self) -> float:
        """R(G) / R(F)."""
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
