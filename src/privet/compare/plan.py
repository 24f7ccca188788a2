"""What to expect before anything is spent: measured curves, read at your n times epsilon.

How well a private method does depends above all on n epsilon, the number of records times the
budget: noise is as large for few records as for many. So a curve that was measured on one data set
of a kind is read at your n epsilon, and beyond its ends it is not continued but held.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any, final

import numpy as np

from privet import _check
from privet.errors import InvalidArgument
from privet.methods.enough import Signal, check_enough

KINDS = ("pictures", "table", "volumes")


@final
@dataclass(frozen=True, kw_only=True)
class Curve:
    """Accuracy of one method on one data set, against epsilon, as we measured it."""

    method: str
    settings: str
    kind: str
    data: str
    records: int
    delta: float
    unit: str
    limit: float | None
    """What the same model reaches without privacy, where we measured it."""
    minutes: float | None
    """Of training on that many records, after public features; None: not timed."""
    points: tuple[tuple[float, float], ...]
    command: str

    def at(self, scale: float) -> tuple[float, bool]:
        """The measure read at n epsilon, and whether that lies within what was measured."""
        x = np.log([self.records * e for e, _ in self.points])
        y = [a for _, a in self.points]
        at = math.log(scale)
        return float(np.interp(at, x, y)), bool(x[0] - 1e-9 <= at <= x[-1] + 1e-9)


@final
@dataclass(frozen=True, kw_only=True)
class Advice:
    """A method, and what to expect of it."""

    curve: Curve
    expected: float
    within: bool
    minutes: float | None
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        c = self.curve
        return {
            "method": c.method, "settings": c.settings, "expected": self.expected,
            "not_private": c.limit, "within_measured_range": self.within, "unit": c.unit,
            "measured_on": f"{c.data}, {c.records:,} records", "minutes": self.minutes,
            "fits_the_time": self.fits, "curve": [list(p) for p in c.points], "command": c.command,
        }  # fmt: skip


def curves() -> tuple[Curve, ...]:
    """All that was measured, as shipped."""
    text = resources.files("privet.compare").joinpath("measured.json").read_text()
    return tuple(
        Curve(**{**row, "points": tuple((float(e), float(a)) for e, a in row["points"])})
        for row in json.loads(text)
    )


def advise(
    *, records: int, kind: str, epsilon: float, minutes: float | None = None
) -> tuple[Advice, ...]:
    """Methods for this kind of data, the most promising first; those that take too long last.

    >>> best = advise(records=60_000, kind="pictures", epsilon=1.0)[0]
    >>> best.within, best.expected > 0.97
    (True, True)
    """
    n = _check.count("records", records)
    _check.positive("epsilon", epsilon)
    if kind not in KINDS:
        raise InvalidArgument("kind", kind, f"one of {', '.join(KINDS)}")
    check_enough(Signal(units=n, numbers=1), epsilon=epsilon, delta=1e-5)
    found = []
    for curve in curves():
        if curve.kind != kind:
            continue
        expected, within = curve.at(n * epsilon)
        time = None if curve.minutes is None else curve.minutes * n / curve.records
        fits = minutes is None or time is None or time <= minutes
        found.append(Advice(curve=curve, expected=expected, within=within, minutes=time, fits=fits))
    return tuple(sorted(found, key=lambda a: (not a.fits, -a.expected)))
