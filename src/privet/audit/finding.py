"""What an audit found: a lower bound of epsilon, its ceiling, its control and the verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, final

from privet import _check
from privet._formatting import number, small_table
from privet.guarantee import number_to_json


class Verdict(Enum):
    """What an audit says of the stated epsilon; never that it was verified."""

    FALSIFIED = "falsified"
    CONSISTENT = "consistent"
    UNINFORMATIVE = "uninformative"


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
    """What an attack reached, beside what was claimed and what is proved.

    `audited` is a lower bound of the true epsilon with probability `confidence`; `ceiling` is the
    most that so many trials could ever show, `control` what they show of a release without noise.
    The verdict is on the smaller of claim and proof: *falsified* when audited is above it,
    *uninformative* when ceiling or control could not have reached it.
    `parametric`: the bound also assumes the shape of the noise. `threat`: what the attacker sees.

    >>> import math
    >>> Finding(what="x", claimed=1.0, proved=math.inf, audited=1.4, ceiling=9.0, control=9.0,
    ...         delta=0.0, confidence=0.95, trials=10_000, method="", parametric=False,
    ...         seconds=0.1).verdict
    <Verdict.FALSIFIED: 'falsified'>
    """

    what: str
    claimed: float | None
    proved: float
    audited: float
    ceiling: float
    control: float
    delta: float
    confidence: float
    trials: int
    method: str
    parametric: bool
    seconds: float
    threat: str = "knows both neighbours and sees what is released"

    @property
    def verdict(self) -> Verdict:
        """Falsified, consistent or uninformative."""
        stated = self.proved if self.claimed is None else min(self.claimed, self.proved)
        if self.audited > stated:
            return Verdict.FALSIFIED
        if min(self.ceiling, self.control) < stated:
            return Verdict.UNINFORMATIVE
        return Verdict.CONSISTENT

    @property
    def in_words(self) -> str:
        """The verdict for somebody who has never read about audits.

        >>> found = Finding(
        ...     what="x", claimed=None, proved=1.0, audited=0.83, ceiling=9.0, control=700.0,
        ...     delta=0.0, confidence=0.95, trials=100, method="", parametric=False, seconds=0.1,
        ...     threat="sees everything that is released")
        >>> found.in_words.split("; ")[0]
        'An attacker who sees everything that is released reached 0.83 of 1'
        >>> found.in_words.split("; ")[1]
        'without noise the same attack reaches 700.'
        """
        stated = self.proved if self.claimed is None else min(self.claimed, self.proved)
        found = (
            f"An attacker who {self.threat} reached {_figure(self.audited)} of {_figure(stated)}; "
            f"without noise the same attack reaches {_figure(self.control)}."
        )
        if self.verdict is Verdict.FALSIFIED:
            return f"{found} More than was stated: the statement is false."
        if self.verdict is Verdict.UNINFORMATIVE:
            reach = _figure(min(self.ceiling, self.control))
            return f"{found} It could not have reached more than {reach}, and says nothing."
        return found

    def _repr_html_(self) -> str:
        rows = [
            (name, number(getattr(self, name)))
            for name in ("claimed", "proved", "audited", "ceiling", "control")
        ]
        rows += [("confidence", f"{self.confidence:.1%}"), ("by", self.method)]
        return small_table(f"{self.what}: {self.verdict.value}", rows, note=self.in_words)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping; an infinite epsilon is written as the string "inf"."""
        figures = ("proved", "audited", "ceiling", "control")
        return {
            **asdict(self),
            "claimed": None if self.claimed is None else number_to_json(self.claimed),
            **{name: number_to_json(getattr(self, name)) for name in figures},
            "verdict": self.verdict.value,
            "in_words": self.in_words,
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, kw_only=True)
class Audit:
    """How sure a lower bound of epsilon has to be, and at which delta: what all audits share."""

    confidence: float = 0.95
    delta: float = 1e-5

    def __post_init__(self) -> None:
        _check.open_unit("confidence", self.confidence)
        _check.delta_or_zero("delta", self.delta)

    @property
    def alpha(self) -> float:
        """How often the bound may be wrong."""
        return 1.0 - self.confidence

    def finding(self, **found: Any) -> Finding:
        """What was found, at this confidence and delta."""
        return Finding(delta=self.delta, confidence=self.confidence, **found)


def _figure(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 and math.isfinite(x) else f"{x:.3g}"
