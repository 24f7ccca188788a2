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
from privet.loss.gaussian import gaussian_epsilon, gaussian_mu

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
    text = resources.files("privet.experiments").joinpath("measured.json").read_text()
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
    check_enough(records=n, numbers=1, epsilon=epsilon, delta=1e-5)
    found = []
    for curve in curves():
        if curve.kind != kind:
            continue
        expected, within = curve.at(n * epsilon)
        time = None if curve.minutes is None else curve.minutes * n / curve.records
        fits = minutes is None or time is None or time <= minutes
        found.append(Advice(curve=curve, expected=expected, within=within, minutes=time, fits=fits))
    return tuple(sorted(found, key=lambda a: (not a.fits, -a.expected)))


def check_enough(
    *,
    records: int,
    numbers: int,
    epsilon: float,
    delta: float,
    what: str = "records",
    growth: float = 1.0,
    hint: str = "",
) -> None:
    """Refuse a budget whose noise is longer than all records together; reads sizes alone.

    A release of p numbers, to whose sum a record adds a vector of length at most 1, has noise of
    length about sqrt(p) / mu, with mu(epsilon, delta) that of a Gaussian release (epsilon / sqrt 2
    at delta 0). The sum is at most n long, when all records pull the same way. So with n mu below
    sqrt(p) most of what is learned is noise, and neither clipping bounds (which scale both) nor
    steps (T sampled steps at rate q and noise z cost about mu = q sqrt(T) / z or more) change that.

    A rule, not a theorem: records that differ in one feature alone, and perfectly, could be told
    apart down to n mu = 1. Measured at epsilon .003, .01 and .03 (delta 1e-5) on digits,
    breast_cancer and blobs: DP-SGD, one-shot moments and the auto-encoder are no better than
    guessing wherever n mu / sqrt(p) is below 1, and clearly better from about 5 on; part of that
    is a test.

    `growth` is 1 for noise that is added once, and 1/2 for noise that every record adds to itself,
    whose length grows with sqrt(n).

    >>> try:
    ...     check_enough(records=100, numbers=10, epsilon=0.01, delta=1e-5)
    ... except InvalidArgument as refusal:
    ...     print(refusal.expected)
    at least 0.097 for 100 records, or 780 records for 0.01
    """
    n = _check.count(what, records)
    _check.positive("epsilon", epsilon)
    length = math.sqrt(_check.count("numbers", numbers))
    pure = _check.delta_or_zero("delta", delta) == 0.0
    mu = epsilon / math.sqrt(2.0) if pure else gaussian_mu(epsilon, delta)
    if n**growth * mu >= length:
        return
    least = length / n**growth
    needed = _up(least * math.sqrt(2.0) if pure else gaussian_epsilon(least, delta))
    many = round(_up((length / mu) ** (1.0 / growth)))
    raise InvalidArgument(
        "epsilon",
        epsilon,
        f"at least {needed:g} for {n:,} {what}, or {many:,} {what} for {epsilon:g}",
        "; ".join(filter(None, ["noise would be longer than all of them together", hint])),
    )


def linear_numbers(features: int, classes: int) -> int:
    """Numbers of a linear model, K (d + 1), for `check_enough`; no more than 100 columns count.

    The many columns of pictures go together, so that less than all of them has to be learned: 300
    pictures of MNIST at epsilon 1, outweighed if all 784 pixels counted, still teach DP-SGD a
    little (21% right), 100 do not.
    """
    return classes * (min(features, 100) + 1)


def _up(x: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / unit) * unit
