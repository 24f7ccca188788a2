"""What to expect before anything is spent: ranges over data sets, read at your n times epsilon.

How well a private method does depends on n epsilon, the number of records times the budget (noise
is as large for few records as for many), and on the data, which nobody knows beforehand. So what
was measured on each data set of a kind is read at your n epsilon, and what is told is the range
over the data sets, worst to best. Beyond the ends of what was measured it is held, not continued.
`python -m benchmarks.plan` writes the table.
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
from privet.methods.contract import Signal, check_enough

KINDS = ("pictures", "table")
COMMAND = "python -m benchmarks.plan"
_WORDS = {"volumes": "no volumes were measured; see the page on PATE for volumes"}


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on so many records of one data set at one budget, as we measured it."""

    method: str
    kind: str
    data: str
    records: int
    epsilon: float
    delta: float
    accuracy: float
    balanced: float
    """Mean accuracy over classes."""
    guessing: float
    """What always saying the most frequent class of the test records would reach."""
    feature_minutes: float
    minutes: float
    """Of one thread: public features of the records, and training."""

    @property
    def scale(self) -> float:
        """n epsilon."""
        return self.records * self.epsilon


@final
@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What one data set says of a method at a given n epsilon."""

    data: str
    accuracy: float
    balanced: float
    guessing: float
    within: bool
    """Whether that n epsilon lies within what was measured on it."""


@final
@dataclass(frozen=True, kw_only=True)
class Advice:
    """A method, and the range of what to expect of it."""

    method: str
    by_data: tuple[Expectation, ...]
    minutes: float
    """Features and training, of one thread, at the slowest rate that was measured."""
    fits: bool

    @property
    def range(self) -> tuple[float, float]:
        """Accuracy on the worst and on the best data set."""
        told = [e.accuracy for e in self.by_data]
        return min(told), max(told)

    @property
    def within(self) -> bool:
        """Whether any of it lies within what was measured."""
        return any(e.within for e in self.by_data)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        low, high = self.range
        return {
            "method": self.method, "expected_low": low, "expected_high": high,
            "within_measured_range": self.within, "minutes": self.minutes,
            "fits_the_time": self.fits, "command": COMMAND,
            "data": [
                {"data": e.data, "accuracy": e.accuracy, "balanced_accuracy": e.balanced,
                 "guessing": e.guessing, "within_measured_range": e.within}
                for e in self.by_data
            ],
        }  # fmt: skip


def cells() -> tuple[Cell, ...]:
    """All that was measured, as shipped."""
    text = resources.files("privet.compare").joinpath("measured.json").read_text()
    return tuple(Cell(**row) for row in json.loads(text))


def advise(
    *, records: int, kind: str, epsilon: float, minutes: float | None = None
) -> tuple[Advice, ...]:
    """Methods for this kind of data, the most promising first; those that take too long last.

    >>> best = advise(records=10_000, kind="table", epsilon=1.0)[0]
    >>> low, high = best.range
    >>> best.within, 0.5 < low < high < 1.0
    (True, True)
    """
    n = _check.count("records", records)
    _check.positive("epsilon", epsilon)
    if kind not in KINDS:
        raise InvalidArgument("kind", kind, f"one of {', '.join(KINDS)}", _WORDS.get(kind, ""))
    check_enough(Signal(units=n, numbers=1), epsilon=epsilon, delta=1e-5)
    mine = [cell for cell in cells() if cell.kind == kind]
    found = []
    for method in dict.fromkeys(cell.method for cell in mine):
        own = [cell for cell in mine if cell.method == method]
        names = dict.fromkeys(cell.data for cell in own)
        told = tuple(_read([c for c in own if c.data == name], n * epsilon) for name in names)
        largest = [max((c for c in own if c.data == d), key=lambda c: c.records) for d in names]
        time = n * max((c.feature_minutes + c.minutes) / c.records for c in largest)
        fits = minutes is None or time <= minutes
        found.append(Advice(method=method, by_data=told, minutes=time, fits=fits))
    return tuple(sorted(found, key=lambda a: (not a.fits, -_mean(a))))


def _read(own: list[Cell], scale: float) -> Expectation:
    """The cells of one data set, read at n epsilon."""
    own = sorted(own, key=lambda c: c.scale)
    x, at = np.log([c.scale for c in own]), math.log(scale)
    accuracy, balanced = (
        float(np.interp(at, x, [getattr(c, name) for c in own]))
        for name in ("accuracy", "balanced")
    )
    within = bool(x[0] - 1e-9 <= at <= x[-1] + 1e-9)
    return Expectation(
        data=own[0].data, accuracy=accuracy, balanced=balanced, guessing=own[0].guessing,
        within=within,
    )  # fmt: skip


def _mean(advice: Advice) -> float:
    return sum(e.balanced for e in advice.by_data) / len(advice.by_data)
