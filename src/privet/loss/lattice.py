"""Composition of discretised losses by one transform, for parts that the contour cannot resolve.

Each elementary profile is replaced by its piecewise linear interpolation in alpha = e^epsilon between the points of
a grid ("connect the dots", Doroshenko et al. 2022). The profile is convex in alpha, so that this only raises it,
and it is the profile of a pair of laws on the grid. Those compose by multiplying their transforms, taken on the line
Re z = order, so that small probabilities keep their digits. The inverse transform at the grid's frequencies is
exactly sum_m e^(order m P) delta(epsilon + m P), again never too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privet.loss.base import Array, Direction, Part
from privet.loss.contour import Renyi, tolerance_of

_LOG_CUT = math.log(1e-4)


@dataclass(frozen=True, kw_only=True)
class Masses:
    """Probabilities under P at the points first, first + 1, ... times `step`, and at infinity."""

    first: int
    step: float
    values: Array
    infinite: float


def connect_the_dots(part: Part, direction: Direction, step: float, low: int, high: int) -> Masses:
    """The grid law whose profile interpolates that of one release of `part`.

    Between neighbouring alphas the slope is minus the Q-mass above; the masses are differences of slopes.
    """
    j = np.arange(low, high + 1)
    profile = part.profile(step * j, direction)
    assert profile is not None
    # slope_j = (D_(j-1) - D_j) / (alpha_j - alpha_(j-1)) times alpha_j, so that nothing overflows
    fall = np.maximum(profile[:-1] - profile[1:], 0.0)
    slope = fall / -math.expm1(-step)
    first = 1.0 - profile[0]
    scaled = np.concatenate([[first], slope, [0.0]])
    masses = scaled[:-1] - scaled[1:] * math.exp(-step)
    return Masses(
        first=low, step=step, values=np.maximum(masses, 0.0), infinite=float(profile[-1])
    )


def _range(part: Part, direction: Direction, delta_each: float) -> tuple[float, float]:
    """Losses below and above which one release has negligible probability."""

    def above(e: float) -> float:
        values = part.profile(np.array([e]), direction)
        assert values is not None
        return float(values[0])

    high = 1e-6
    while above(high) > delta_each and high < 1e9:
        high *= 1.25
    low = 1e-6
    while above(-low) + math.expm1(-low) > max(delta_each, 1e-15) and low < 1e9:
        low *= 1.25
    return -low, high


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The composed law's transform and how to read delta from it."""

    step: float
    size: int
    order: float
    log_scale: float
    transform: Array
    infinite: float
    slack: float

    def log_deltas(self) -> tuple[Array, Array]:
        """log delta at the grid points epsilon_n = n step, n = 0 .. size - 1."""
        h, lam = self.step, self.order
        w = 2.0 * math.pi * np.arange(self.size // 2 + 1) / (self.size * h)
        z = lam + 1j * w
        # the transform of (1 - e^(-y))_+ on the grid y = 0, h, 2h, ...
        kernel = 1.0 / -np.expm1(-z * h) - 1.0 / -np.expm1(-(z + 1.0) * h)
        sums = np.fft.irfft(np.conj(self.transform * kernel), self.size)
        sums = np.maximum(sums, 0.0) + self.slack
        n = np.arange(self.size)
        epsilons = h * n
        logs = self.log_scale - lam * epsilons + np.log(sums)
        return epsilons, np.logaddexp(logs, math.log(max(self.infinite, 1e-320)))


def compose(
    parts: Sequence[Part], direction: Direction, *, order: float, step: float, size: int, delta: float
) -> Grid:
    """The law of the sum of all parts on a grid of `size` points (periodic)."""
    total = np.zeros(size // 2 + 1, dtype=complex)
    log_scale, survive, releases = 0.0, 0.0, sum(p.releases for p in parts)
    for part in parts:
        for single, count in part.singles():
            low, high = _range(single, direction, 1e-5 * delta / releases)
            masses = connect_the_dots(
                single, direction, step, math.floor(low / step) - 1, math.ceil(high / step) + 1
            )
            x = step * (masses.first + np.arange(len(masses.values)))
            with np.errstate(divide="ignore"):
                tilted = np.log(masses.values) + order * x
            top = float(np.max(tilted))
            wrapped = np.zeros(size)
            index = (masses.first + np.arange(len(masses.values))) % size
            np.add.at(wrapped, index, np.exp(tilted - top))
            # conjugate of numpy's forward transform has the sign e^(+i w x)
            values = np.conj(np.fft.rfft(wrapped))
            total = total + count * np.log(np.where(values == 0, 1e-300, values))
            log_scale += count * top
            survive += count * math.log1p(-masses.infinite)
    peak = float(total[0].real)
    slack = 4e-16 * (releases + 8.0) * math.log2(size) / order / step
    return Grid(
        step=step,
        size=size,
        order=order,
        log_scale=log_scale + peak,
        transform=np.exp(total - peak),
        infinite=-math.expm1(survive),
        slack=slack,
    )


def _solve(
    parts: Sequence[Part], direction: Direction, *, delta: float, guess: float
) -> tuple[Array, Array] | None:
    if any(s.profile(np.zeros(1), direction) is None for p in parts for s, _ in p.singles()):
        return None
    releases = sum(p.releases for p in parts)
    renyi = Renyi(parts=parts, direction=direction, cut=1e-4 * delta / releases)
    order = min(renyi.delta(guess)[1], 1e5)
    period = max(4.0 * guess, 2.0 * (math.log(1e6) - math.log(delta)) / order)
    # rounding a loss to the grid spreads it by at most step^2 / 4, as one more Gaussian release would
    allowed = 0.5 * tolerance_of(guess)
    step = math.sqrt(8.0 * allowed / ((order + 1.0) * releases))
    size = 1 << min(21, max(10, math.ceil(math.log2(period / step))))
    grid = compose(parts, direction, order=order, step=period / size, size=size, delta=delta)
    return grid.log_deltas()


def epsilon(parts: Sequence[Part], direction: Direction, delta: float, guess: float) -> float:
    """An epsilon that is never too small; inf where the grid does not reach."""
    answer = _solve(parts, direction, delta=delta, guess=guess)
    if answer is None:
        return math.inf
    epsilons, logs = answer
    deltas = np.exp(np.minimum(logs, 0.0))
    half = len(epsilons) // 2
    under = np.nonzero(deltas[:half] <= delta)[0]
    if len(under) == 0:
        return math.inf
    n = int(under[0])
    if n == 0:
        return 0.0
    # linear in alpha between grid points, which is exact for a law on the grid
    above, below = deltas[n - 1], deltas[n]
    share = (above - delta) / (above - below)
    lower, upper = float(epsilons[n - 1]), float(epsilons[n])
    return min(upper, lower + math.log1p(share * math.expm1(upper - lower)) * (1.0 + 1e-12))


def delta(parts: Sequence[Part], direction: Direction, epsilon: float, guess: float) -> float:
    """A delta that is never too small; 1 where the grid does not reach."""
    answer = _solve(parts, direction, delta=max(guess, 1e-300), guess=epsilon)
    if answer is None:
        return 1.0
    epsilons, logs = answer
    n = int(np.searchsorted(epsilons, epsilon, side="right")) - 1
    return min(1.0, float(np.exp(min(logs[n], 0.0)))) if n < len(epsilons) // 2 else 1.0
