"""What to expect before anything is spent: ranges over data sets, read at your n times epsilon.

How well a private method does depends on n epsilon, the number of records times the budget (noise
is as large for few records as for many), and on the data, which nobody knows beforehand. So what
was measured on each data set of a kind is read at your n epsilon, and what is reported is the range
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
from privet.methods.feasibility import Signal, check_enough

KINDS = ("pictures", "table")
COMMAND = "python -m benchmarks.plan"
_WORDS = {"volumes": "no volumes were measured; see the page on PATE for volumes"}


@final
@dataclass(frozen=True, kw_only=True)
class MeasuredAccuracy:
    """One method on so many records of one data set at one budget, as we measured it."""

    method: str
    kind: str
    data: str
    classes: int
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
        """The number of records times epsilon."""
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
        accuracies = [e.accuracy for e in self.by_data]
        return min(accuracies), max(accuracies)

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


def measured_accuracies() -> tuple[MeasuredAccuracy, ...]:
    """All measurements that are shipped with the package."""
    text = resources.files("privet.compare").joinpath("measured.json").read_text()
    return tuple(MeasuredAccuracy(**row) for row in json.loads(text))


def advise(
    *,
    records: int,
    kind: str,
    epsilon: float,
    minutes: float | None = None,
    classes: int | None = None,
) -> tuple[Advice, ...]:
    """Methods for this kind of data, the most promising first; those that take too long last.

    Two `classes` have fewer numbers to learn than ten, and another order of methods: where they are
    given, only data sets with two, or with more, are read. The order is that of the mean balanced
    accuracy over data sets that were measured at this n epsilon; of all of them, if none was.

    >>> best = advise(records=10_000, kind="table", epsilon=1.0)[0]
    >>> low, high = best.range
    >>> best.within, 0.5 < low < high < 1.0
    (True, True)
    """
    n = _check.count("records", records)
    if classes is not None:
        _check.count("classes", classes, minimum=2)
    _check.positive("epsilon", epsilon)
    if kind not in KINDS:
        raise InvalidArgument("kind", kind, f"one of {', '.join(KINDS)}", _WORDS.get(kind, ""))
    check_enough(Signal(units=n, numbers=1), epsilon=epsilon, delta=1e-5)
    mine = [
        cell
        for cell in measured_accuracies()
        if cell.kind == kind and (classes is None or (cell.classes > 2) is (classes > 2))
    ]
    found = []
    for method in dict.fromkeys(cell.method for cell in mine):
        own = [cell for cell in mine if cell.method == method]
        names = dict.fromkeys(cell.data for cell in own)
        by_data = tuple(
            _expect_at([c for c in own if c.data == name], n * epsilon) for name in names
        )
        largest = [max((c for c in own if c.data == d), key=lambda c: c.records) for d in names]
        time = n * max((c.feature_minutes + c.minutes) / c.records for c in largest)
        fits = minutes is None or time <= minutes
        found.append(Advice(method=method, by_data=by_data, minutes=time, fits=fits))
    return tuple(sorted(found, key=lambda a: (not a.fits, -_mean(a))))


def _expect_at(cells: list[MeasuredAccuracy], scale: float) -> Expectation:
    """Interpolate the measurements on one data set at this n epsilon."""
    cells = sorted(cells, key=lambda c: c.scale)
    x, at = np.log([c.scale for c in cells]), math.log(scale)
    accuracy, balanced = (
        float(np.interp(at, x, [getattr(c, name) for c in cells]))
        for name in ("accuracy", "balanced")
    )
    within = bool(x[0] - 1e-9 <= at <= x[-1] + 1e-9)
    return Expectation(
        data=cells[0].data, accuracy=accuracy, balanced=balanced, guessing=cells[0].guessing,
        within=within,
    )  # fmt: skip


def _mean(advice: Advice) -> float:
    """Mean balanced accuracy where it was measured: what is held beyond the ends says little."""
    read = [e for e in advice.by_data if e.within] or list(advice.by_data)
    return sum(e.balanced for e in read) / len(read)
