"""Whether a budget can do anything: a plan is refused whose noise is longer than all records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from privet.accounting.gaussian import gaussian_epsilon, gaussian_mu
from privet.errors import InvalidArgument
from privet.methods.release_context import ReleaseContext as ReleaseContext
from privet.settings import setting as setting


@final
@dataclass(frozen=True, kw_only=True)
class Signal:
    """What stands against the noise: so many units, each a vector of length at most 1.

    `numbers` are learned from their sum. `growth` is 1 for noise that is added once, and 1/2 for
    noise that every unit adds to itself, whose length grows with the root of their number.
    """

    units: int
    numbers: int
    what: str = "records"
    growth: float = 1.0

    def times(self, mu: float) -> float:
        """How many times as long as the noise all units together are, under a Gaussian of mu."""
        return float(self.units**self.growth) * mu / math.sqrt(self.numbers)


def linear_numbers(features: int, classes: int) -> int:
    """Numbers of a linear model, K (d + 1), for `Signal`; no more than 100 columns count.

    The many columns of pictures go together, so that less than all of them has to be learned: 300
    pictures of MNIST at epsilon 1, outweighed if all 784 pixels counted, still teach DP-SGD a
    little (21% right), 100 do not.
    """
    return classes * (min(features, 100) + 1)


def check_enough(signal: Signal, *, epsilon: float, delta: float, hint: str = "") -> None:
    """Refuse a budget whose noise is longer than all records together; reads sizes alone.

    A release of p numbers, to whose sum a record adds a vector of length at most 1, has noise of
    length about sqrt(p) / mu, with mu(epsilon, delta) that of a Gaussian release (epsilon / sqrt 2
    at delta 0). The sum is at most n long, when all records pull the same way. So with n mu below
    sqrt(p) most of what is learned is noise, and neither clipping bounds (which scale both) nor
    steps (T sampled steps at rate q and noise z cost about mu = q sqrt(T) / z or more) change that.

    A rule, not a theorem: records that differ in one feature alone, and perfectly, could be
    distinguished down to n mu = 1. Measured at epsilon .003, .01 and .03 (delta 1e-5) on digits,
    breast_cancer and blobs: DP-SGD, one-shot moments and the auto-encoder are no better than
    guessing wherever n mu / sqrt(p) is below 1, and clearly better from about 5 on; part of that
    is a test.

    >>> try:
    ...     check_enough(Signal(units=100, numbers=10), epsilon=0.01, delta=1e-5)
    ... except InvalidArgument as refusal:
    ...     print(refusal.expected)
    at least 0.097 for 100 records, or 780 records for 0.01
    """
    what, growth = signal.what, signal.growth
    n, length, pure = signal.units, math.sqrt(signal.numbers), delta == 0.0
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


LITTLE, SOME = 5.0, 20.0
"""Times that all units together are as long as the noise, n mu / sqrt(p).

Measured by `python -m benchmarks.small_data` on generated tables of 5 and 20 columns, 40 to 1,500
users with 4 rows each, epsilon 1 and 4, 6 seeds, medians. Below 5: R2 of -.39 to .37 where .61 is
possible without privacy (DP-SGD), 50 to 60% right (one-shot moments) and 68 to 83% (DP-SGD) where
86 are. From 5 to 20: R2 .38 to .52, 60 to 83% and 78 to 84%. From 20 on: .52, 78% and 83% or more.
"""


def expectation(signal: Signal, *, epsilon: float, delta: float, number: bool) -> str:
    """What to expect where there is little against the noise, from sizes alone; else nothing.

    `number`: whether a number is predicted, not a class.

    >>> users = Signal(units=71, numbers=21, what="users")
    >>> expectation(users, epsilon=1.0, delta=1e-5, number=True)
    'little to learn from: 71 users are 4.2 times as long as the noise at epsilon 1: it may be ...
    >>> expectation(Signal(units=9000, numbers=21), epsilon=1.0, delta=1e-5, number=True)
    ''
    """
    if signal.what not in ("records", "users") or signal.growth != 1.0:
        return ""  # teachers' answers, or records that add noise to themselves: not measured
    mu = epsilon / math.sqrt(2.0) if delta == 0.0 else gaussian_mu(epsilon, delta)
    length = math.sqrt(signal.numbers)
    times = signal.units * mu / length
    if times >= SOME:
        return ""
    worst = "a constant" if number else "guessing"
    outlook = (
        f"it may be no better than {worst}"
        if times < LITTLE
        else "expect much less than without privacy"
    )
    what, many = signal.what, round(_up(SOME * length / mu))
    return (
        f"little to learn from: {signal.units:,} {what} are {times:.2g} times as long as the noise "
        f"at epsilon {epsilon:g}: {outlook}; {many:,} {what} would be {SOME:g} times "
        "(`privet plan` has what was measured)"
    )


class LittleSignal(UserWarning):
    """A budget whose noise leaves little to learn from so few; told before anything is charged."""


def _up(x: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / unit) * unit
