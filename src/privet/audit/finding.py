"""What an audit found: a lower bound of epsilon, its ceiling, its control and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, final

from privet._files import number_to_json


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
    threat: str = "knows both neighbours, sees what is released"

    @property
    def verdict(self) -> Verdict:
        """Falsified, consistent or uninformative."""
        stated = self.proved if self.claimed is None else min(self.claimed, self.proved)
        if self.audited > stated:
            return Verdict.FALSIFIED
        if min(self.ceiling, self.control) < stated:
            return Verdict.UNINFORMATIVE
        return Verdict.CONSISTENT

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping; an infinite epsilon is written as the string "inf"."""
        return {
            "what": self.what,
            "claimed": None if self.claimed is None else number_to_json(self.claimed),
            "proved": number_to_json(self.proved),
            "audited": number_to_json(self.audited),
            "ceiling": number_to_json(self.ceiling),
            "control": number_to_json(self.control),
            "verdict": self.verdict.value,
            "delta": self.delta,
            "confidence": self.confidence,
            "trials": self.trials,
            "method": self.method,
            "threat": self.threat,
            "parametric": self.parametric,
            "seconds": round(self.seconds, 2),
        }
