"""What a ledger may say it has spent at any moment, and the premises of what it promises.

Two different statements, hence two types. The cap is a *filter*: it was fixed beforehand, and holds
whoever decides what to charge next. The total so far is an *odometer*: who reads it may have
stopped because of what was released, and a plain composition of the charges is then too small.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, final

from privet import accounting as losses
from privet import premises
from privet._formatting import standing_in_words
from privet.accounting import LossPart
from privet.guarantee import Adjacency, Premise, Unit, number_to_json
from privet.ledger.terms import Terms

GRID = tuple(2.0 ** (k / 4.0) for k in range(-28, 41))
"""The public budgets that an odometer reads from: 0.0078 to 1024, each 19% above the last."""


@final
@dataclass(frozen=True, kw_only=True)
class Odometer:
    """What has been spent, readable at any moment, also one chosen by looking at the releases.

    With L the privacy loss of what was released until then,
    E[(1 - e^(epsilon - L))_+] <= delta, although epsilon and the moment depend on the releases.

    Theorem (docs/theory/ledger.md): fix budgets e_1 < ... < e_K and shares d_k of delta. If the
    losses charged so far compose to at most e_k at d_k, for the least such k, then epsilon = e_k
    has this property, by one filter for each k and a union over them. It is not a `Guarantee`: its
    epsilon was not fixed beforehand.

    >>> from privet.ledger import Ledger
    >>> from privet.accounting import Gaussian
    >>> ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5)
    >>> entry = ledger.charge(Gaussian(mu=0.3), what="mean")
    >>> round(ledger.spent(), 3), round(ledger.odometer().epsilon, 3)
    (1.132, 1.414)
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    unit: Unit
    premises: tuple[Premise, ...]

    def __str__(self) -> str:
        return (
            f"epsilon {self.epsilon:.4g} spent so far at delta {self.delta:.3g} per "
            f"{self.unit.value}, {self.adjacency.value}, whenever it is read, "
            + standing_in_words("proved", [p.backing.value for p in self.premises])
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "epsilon": number_to_json(self.epsilon),
            "delta": self.delta,
            "adjacency": self.adjacency.value,
            "unit": self.unit.value,
            "text": str(self),
            "premises": [p.to_dict() for p in self.premises],
        }


def share_of_delta(terms: Terms) -> float:
    """The delta at which each of the public budgets of an odometer is held."""
    return terms.cap_delta / len(GRID)


def read_odometer(
    terms: Terms, epsilon: float, kinds: Set[type[LossPart]], *, seeded: int
) -> Odometer:
    """The odometer of losses that compose to `epsilon` at `share_of_delta`: the budget above it.

    At delta = 0 the sum itself: pure losses are bounded for certain, hence at every moment.
    """
    if terms.cap_delta > 0.0 and epsilon > 0.0:
        epsilon = next((budget for budget in GRID if epsilon <= budget), math.inf)
    return Odometer(
        epsilon=epsilon,
        delta=terms.cap_delta,
        adjacency=terms.adjacency,
        unit=terms.unit,
        premises=premises_of(kinds, terms.cap_delta, seeded),
    )


def premises_of(kinds: Set[type[LossPart]], delta: float, seeded: int) -> tuple[Premise, ...]:
    """What every promise of a ledger with such losses rests on."""
    noise = premises.SECRET_SEED if seeded else premises.SECRET_NOISE
    always = (premises.ALL_CHARGED, premises.LOSSES_BOUND, noise)
    return always if is_filter(kinds, delta) else (*always, premises.NOT_ADAPTIVE)


def is_filter(kinds: Set[type[LossPart]], delta: float) -> bool:
    """Whether a cap on such losses holds even when each is chosen after seeing earlier releases.

    Composition theorems fix the losses beforehand. Choosing them on the way is known to cost
    nothing extra for sums of pure epsilons at delta = 0 (Rogers, Roth, Ullman and Vadhan 2016), for
    Gaussian losses (Smith and Thakurta 2022) and for zero-concentrated ones (Feldman and Zrnic
    2021); for exact composition of other losses it is not.

    >>> from privet.accounting import Gaussian, Pure
    >>> is_filter({Gaussian}, 1e-5), is_filter({Gaussian, Pure}, 1e-5)
    (True, False)
    """
    if delta == 0.0 and kinds <= {losses.Pure, losses.Laplace}:
        return True
    return kinds <= {losses.Gaussian} or kinds <= {losses.ZCDP}
