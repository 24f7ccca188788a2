"""What a privacy number means for one person, in sentences for somebody outside the field.

`explain(curve, epsilon=..., delta=...)` is what `privet explain`, the card and the page say. The
numbers are upper bounds for every attack, whatever it knows; `curve` decides how close they are:
that of a run's releases (`loss.trade_off()`), or of an (epsilon, delta) alone
(`privet.accounting.trade_off.trade_off_of_statement`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from privet._formatting import chance, number, percent
from privet.accounting.trade_off import TradeOff
from privet.guarantee import Unit, number_to_json

PRIORS = (0.5, 0.01)
"""What somebody may think beforehand: a coin, and one in a hundred."""
RATES = (0.01, 0.001)
"""Shares of false alarms at which an attack is judged."""
LITTLE = 4.0
"""From this epsilon on a coin's 50% may become 98%: the number by itself says little."""
NOTHING = 8.0
"""From this epsilon on one in a hundred may become 97%: by itself it promises next to nothing."""
TWICE = 2.0
"""A factor on e^epsilon that odds exceed with a chance of at most TWICE / (TWICE - 1) deltas."""
CERTAIN = 0.9995
"""A share that would be written as 100 in 100."""
_PEOPLE = {
    Unit.RECORD: "a person's record was",
    Unit.USER: "a person's records were",
    Unit.SHARD: "a teacher's part of the records was",
    Unit.QUERY: "a query was",
}


def posterior(prior: float, epsilon: float) -> float:
    """The largest belief that can come of a prior one where the odds grow by at most e^epsilon.

    >>> round(posterior(0.5, 1.0), 3), round(posterior(0.01, 8.0), 3)
    (0.731, 0.968)
    """
    if prior <= 0.0 or prior >= 1.0:
        return prior
    return 1.0 / (1.0 + math.exp(-min(epsilon, 700.0)) * (1.0 - prior) / prior)


@final
@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What attackers may come to believe and to find, at most, and what to make of it."""

    epsilon: float
    delta: float
    unit: Unit
    beliefs: tuple[tuple[float, float], ...]
    """(prior, posterior): what somebody believed before and may believe after."""
    found: tuple[tuple[float, float], ...]
    """(false-positive rate, true-positive rate)."""
    guesses: tuple[tuple[float, float], ...]
    """(share of right guesses of a secret before, and after)."""
    advantage: float
    mu: float

    @property
    def warning(self) -> str | None:
        """What has to be said of a large epsilon; None where nothing has."""
        # a run asked for 8 spends 7.99999999, and reads as 8
        epsilon = float(f"{self.epsilon:.3g}")
        if epsilon < LITTLE:
            return None
        if math.isinf(self.epsilon):
            return "Nothing is promised: no bound could be proved."
        if epsilon < NOTHING:
            return (
                f"An epsilon of {number(self.epsilon)} says little by itself: it does not rule out "
                "that an attacker becomes nearly certain about somebody. Ask what attacks reached."
            )
        return (
            f"An epsilon of {number(self.epsilon)} promises next to nothing by itself: it does not "
            "rule out that an attacker is all but certain about almost anybody. What protects then "
            "is not this number. Ask for a smaller one, or what attacks reached."
        )

    @property
    def sentences(self) -> list[str]:
        """All of it, a sentence for each fact, the warning last."""
        used = _PEOPLE[self.unit]
        if math.isinf(self.epsilon):
            return [str(self.warning)]
        beliefs = ", and from ".join(f"{percent(a)} to {percent(b)}" for a, b in self.beliefs)
        still_surer = " or ".join(
            percent(posterior(a, self.epsilon + math.log(TWICE))) for a, _ in self.beliefs
        )
        but = (
            f" This leaves out a chance of {chance(self.delta)}; they become surer than "
            f"{still_surer} with a chance of at most {chance(min(1.0, 2.0 * self.delta))}."
        ) * (self.delta > 0.0)
        finds = ", and ".join(
            f"{_most(b)} when 1 in {1.0 / a:,.0f} of the others is accused wrongly"
            for a, b in self.found
        )
        secrets = "; ".join(
            f"one that is guessed right {_times(a)} before the release may be guessed right "
            f"{_at_most(b)} after it"
            for a, b in self.guesses
        )
        told = [
            f"Somebody who wonders whether {used} used may become surer of it, from {beliefs} at "
            f"most, whatever else they know.{but}",
            f"Somebody who looks for those {_whose(self.unit)} used may find {finds}.",
            "Taken over all that may come out, who guesses between two equally likely cases, used "
            f"or not, may be right {_at_most(0.5 * (1.0 + self.advantage))}; a coin is right "
            "50 times in 100.",
            f"A secret about somebody: {secrets}.",
        ]
        return told if self.warning is None else [*told, self.warning]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "epsilon": number_to_json(self.epsilon),
            "delta": self.delta,
            "unit": self.unit.value,
            "beliefs": [{"prior": a, "posterior_at_most": b} for a, b in self.beliefs],
            "attacker": [
                {"false_positive_rate": a, "true_positive_rate_at_most": b} for a, b in self.found
            ],
            "guesses": [{"before": a, "right_at_most": b} for a, b in self.guesses],
            "advantage": self.advantage,
            "mu": number_to_json(self.mu),
            "warning": self.warning,
            "sentences": self.sentences,
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Explanation:
        """The inverse of `to_dict`; warning and sentences follow from the numbers."""
        return cls(
            epsilon=float(d["epsilon"]),
            delta=d["delta"],
            unit=Unit(d["unit"]),
            beliefs=tuple((b["prior"], b["posterior_at_most"]) for b in d["beliefs"]),
            found=tuple(
                (a["false_positive_rate"], a["true_positive_rate_at_most"]) for a in d["attacker"]
            ),
            guesses=tuple((g["before"], g["right_at_most"]) for g in d["guesses"]),
            advantage=d["advantage"],
            mu=float(d["mu"]),
        )

    @property
    def asked(self) -> tuple[float, ...]:
        """The beliefs and rates that the bounds are about."""
        return tuple(at for at, _ in (*self.beliefs, *self.found, *self.guesses))

    @property
    def bounds(self) -> tuple[float, ...]:
        """Every number that bounds an attacker, the larger the weaker the promise."""
        pairs = (*self.beliefs, *self.found, *self.guesses)
        return (*(most for _, most in pairs), self.advantage, self.mu)


def explain(
    curve: TradeOff, *, epsilon: float, delta: float, unit: Unit = Unit.RECORD
) -> Explanation:
    """What a promise means for one person; `curve` is what is known of the releases.

    **Guarantee**: every number is at least what any attack reaches if the curve holds. A belief is
    where odds grow by e^epsilon. That is exceeded with a chance which `delta` alone does not bound:
    with L the privacy loss, (1 - e^(epsilon - t)) P[L > t] <= delta, so that odds grow `TWICE` as
    far with a chance of at most 2 delta.

    >>> from privet.accounting.trade_off import trade_off_of_statement
    >>> said = explain(trade_off_of_statement(1.0, 1e-5), epsilon=1.0, delta=1e-5)
    >>> said.sentences[2]
    'Taken over all that may come out, who guesses between two equally likely cases, used or not, \
may be right at most 73.1 times in 100; a coin is right 50 times in 100.'
    """
    return Explanation(
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        beliefs=tuple((p, posterior(p, epsilon)) for p in PRIORS),
        found=tuple((a, curve.tpr(a)[1]) for a in RATES),
        guesses=tuple((p, curve.guess(p)) for p in PRIORS),
        advantage=curve.advantage()[1],
        mu=curve.mu()[1],
    )


def _whose(unit: Unit) -> str:
    return {Unit.RECORD: "whose record was", Unit.USER: "whose records were"}.get(unit, "that were")


def _most(share: float) -> str:
    return "all of them" if share > CERTAIN else f"at most {percent(share)} of them"


def _at_most(share: float) -> str:
    return "every time" if share > CERTAIN else f"at most {_times(share)}"


def _times(share: float) -> str:
    """A share as a count.

    >>> _times(0.01), _times(0.731), _times(0.00272)
    ('1 time in 100', '73.1 times in 100', '2.72 times in 1,000')
    """
    of = 100 if share >= 0.01 else 1000
    count = f"{of * share:.3g}"
    return f"{count} time{'s' * (count != '1')} in {of:,}"
