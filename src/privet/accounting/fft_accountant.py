"""The FFT accountant: it chooses the grid and answers bounds of epsilon and of delta.

A plan decides how tight the bounds are, never whether they hold
(`privet.accounting.fft_convolution`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.accounting import discretise
from privet.accounting.fft_convolution import ProfileOnGrid, lower_grid, upper_grid
from privet.accounting.privacy_loss import Array, Direction, LossPart
from privet.accounting.privacy_loss_histograms import LossHistogram

_MOST_POINTS = 20
"""log2 of the largest transform: 8 MB for each array of it."""
_MOST_INTERVALS = 1_500_000
"""Of all distinct releases of one composition together: bounds the time of their histograms."""
_FINEST = 1 << 18
"""Transforms up to this size may be refined for the bound from below, by 4 at a time: beyond, the
time is not worth the digits."""
_MOST_DIRECT = 8
"""Releases that may be convolved directly: eight of 4096 points take 5e8 products."""
_ALIAS = math.log(1e7)
"""log of delta over what each shifted copy of the transform may add."""
_RELATIVE = 1.25e-4
"""Share of epsilon that rounding up to the grid may cost: half of the contour's tolerance."""
_MOST_DISTINCT = 64
"""Distinct releases of one composition: each has a histogram and a transform of its own."""
Releases = list[tuple[LossPart, int]]


@dataclass(frozen=True, kw_only=True)
class GridPlan:
    """A grid for a result near (epsilon, delta): chosen for tightness, any choice is sound."""

    releases: Releases
    direction: Direction
    order: float
    step: float
    size: int
    bottom: float
    """Losses of one release below this go to the first point, or are left out."""
    top: float
    spread: float
    """The usual size of the composed loss."""

    def _range(self) -> tuple[int, int]:
        return math.floor(self.bottom / self.step) - 1, math.ceil(self.top / self.step) + 1

    @property
    def direct(self) -> GridPlan | None:
        """A plan for direct convolution of few releases, on a coarser grid if needed; else None."""
        if sum(count for _, count in self.releases) > _MOST_DIRECT:
            return None
        return replace(self, step=max(self.step, (self.top - self.bottom) / 4096), size=0)

    @property
    def finer(self) -> GridPlan | None:
        """A plan with a quarter of the step, if that is not too dear; else None."""
        intervals = 4 * len(self.releases) * (self.top - self.bottom) / self.step
        if not 0 < 4 * self.size <= _FINEST or intervals > _MOST_INTERVALS:
            return None
        return replace(self, step=self.step / 4.0, size=4 * self.size)

    def upper(self) -> ProfileOnGrid:
        """The bound from above."""
        first, last = self._range()
        ends = self.step * np.arange(first, last + 1)
        laws = [
            (
                discretise.round_up(
                    _histogram(part, self.direction, ends), step=self.step, first=first
                ),
                n,
            )
            for part, n in self.releases
        ]
        return upper_grid(laws, order=self.order, step=self.step, size=self.size)

    def lower(self) -> ProfileOnGrid:
        """The bound from below."""
        first, last = self._range()
        ends = self.step * (np.arange(first, last + 2) - 0.5)
        laws = [
            (
                discretise.round_down(
                    _histogram(part, self.direction, ends),
                    step=self.step,
                    first=first,
                    order=self.order,
                ),
                n,
            )
            for part, n in self.releases
        ]
        return lower_grid(laws, order=self.order, step=self.step, size=self.size)


def _histogram(part: LossPart, direction: Direction, ends: Array) -> LossHistogram:
    histogram = part.histogram(direction, ends)
    assert histogram is not None
    return histogram


# losses of every size, both signs, a fifth apart: to see where one release has its mass
_LOOK = np.concatenate([-np.geomspace(1e9, 1e-13, 280), [0.0], np.geomspace(1e-13, 1e9, 280)])


def plan(
    releases: Releases,
    direction: Direction,
    *,
    delta: float,
    epsilon: float,
    sought: float,
    relative: float,
) -> GridPlan:
    """Where the losses lie, the best order for them, a step for the tolerance, a period.

    `relative` is how much of epsilon rounding up to the grid may cost. Where epsilon is only a
    guess for the delta `sought`, it is lowered to what a coarse grid suggests; 0 leaves it alone.
    """
    total = sum(count for _, count in releases)
    bottom, far, spread, lowest = 0.0, 0.0, 0.0, 0.0
    for part, count in releases:
        histogram = _histogram(part, direction, _LOOK)
        under = histogram.below + np.cumsum(histogram.p)
        low = float(_LOOK[int(np.searchsorted(under, 1e-6 / total))])
        over = histogram.above + np.cumsum(histogram.p[::-1])
        high = float(_LOOK[len(_LOOK) - 1 - int(np.searchsorted(over, 1e-9 * delta / total))])
        bottom, far = min(bottom, low), max(far, high)
        lowest += count * low
        usual = np.abs(histogram.level) < abs(_LOOK[int(np.searchsorted(over, 1e-3 / total))])
        spread += count * float(np.sum((histogram.p * histogram.level**2)[usual]))
    reach = min(-lowest, 8.0 * math.sqrt(spread) - bottom)
    top = max(min(far, 1.02 * epsilon + reach), 1e-300)
    order, chernoff = _order(
        releases, direction, bottom=bottom, top=top, epsilon=epsilon, delta=sought
    )
    epsilon = max(chernoff, 1e-3 * epsilon)
    allowed = relative * max(epsilon, 0.05 * math.sqrt(spread))
    step = math.sqrt(8.0 * allowed / ((order + 1.0) * total))
    decay = (_ALIAS - math.log(delta)) / order
    period = max(decay, 1.1 * epsilon + min(total, 10) * top, 2.2 * epsilon)
    least = (top - bottom) * len(releases) / _MOST_INTERVALS
    most = min(_MOST_POINTS, 24 - math.ceil(math.log2(len(releases))))
    size = 1 << min(most, max(8, math.ceil(math.log2(period / max(step, least)))))
    return GridPlan(
        releases=releases,
        direction=direction,
        order=order,
        step=max(period / size, least),
        size=size,
        bottom=bottom,
        top=top,
        spread=math.sqrt(spread),
    )


def _order(
    releases: Releases,
    direction: Direction,
    *,
    bottom: float,
    top: float,
    epsilon: float,
    delta: float,
) -> tuple[float, float]:
    """(the order with the least e^(K(t) - t epsilon) / t (t+1), the epsilon of that bound), found
    on a coarse grid; epsilon is lowered to what the bound gives at `delta` first."""
    cells = 1024
    step = (top - bottom) / cells
    first = math.floor(bottom / step)
    ends = step * np.arange(first, first + cells + 3)
    orders = np.geomspace(0.02, 2000.0, 64) / min(max(top, 1e-100), 1e100)
    k = np.zeros(len(orders))
    for part, count in releases:
        law = discretise.round_up(_histogram(part, direction, ends), step=step, first=first)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            tilted = np.log(law.masses)[None, :] + orders[:, None] * law.losses[None, :]
            most = np.max(tilted, axis=1)
            k += count * (most + np.log(np.sum(np.exp(tilted - most[:, None]), axis=1)))
    k = np.minimum(np.where(np.isnan(k), np.inf, k), 1e200)  # not a number: no bound at that order
    cost = k + orders * np.log(orders) - (orders + 1.0) * np.log1p(orders)
    if delta > 0.0:
        epsilon = min(epsilon, float(np.min((cost - math.log(delta)) / orders)))
    where = int(np.argmin(k - orders * epsilon - np.log(orders * (orders + 1.0))))
    return float(orders[where]), epsilon


def releases_of(parts: Sequence[LossPart], direction: Direction) -> Releases | None:
    """The elementary releases, if there are few distinct ones and each has a law on a grid."""
    if sum(part.distinct for part in parts) >= _MOST_DISTINCT:
        return None
    singles = [single for part in parts for single in part.elementary_releases()]
    known = all(s.histogram(direction, np.array([-1.0, 1.0])) is not None for s, _ in singles)
    return singles if singles and known else None


def epsilon(
    releases: Releases, direction: Direction, delta: float, guess: float
) -> tuple[float, float, float]:
    """Bounds of epsilon in one direction, (from below, from above), the latter at most `guess`; and
    the usual size of the loss."""
    farthest = 1e12  # a grid for more has no digits left; what no grid confirms stays the guess
    best, low = min(guess, farthest), 0.0

    def look() -> GridPlan:
        return plan(
            releases, direction, delta=delta, epsilon=best, sought=delta, relative=_RELATIVE
        )

    for _ in range(4):
        where = look()
        value = where.upper().epsilon_above(delta)
        done = value >= 0.9 * best
        best = min(best, value)
        if done or best <= 0.0:
            break
    low = where.lower().epsilon_below(delta)
    enough = 5.0 * _RELATIVE * max(best, 0.05 * where.spread)
    if best - low > 20.0 * enough and where.direct is not None:  # the transform's rounding is felt
        for _ in range(3):
            before, where = best, look().direct or where
            best = min(best, where.upper().epsilon_above(delta))
            if best > 0.9 * before:
                break
        low = max(low, where.lower().epsilon_below(delta))
    while best - low > enough and where.finer is not None:
        where = where.finer
        low = max(low, where.lower().epsilon_below(delta))
    return min(best, low), best if best < farthest else guess, where.spread


def plan_near(
    releases: Releases, direction: Direction, epsilon: float, guess: float
) -> Iterator[tuple[ProfileOnGrid, float]]:
    """Grids planned for one epsilon, where delta is at most `guess`: each with +1 for a bound from
    above or -1 for one from below, until the two are close there."""
    best = guess

    def look() -> GridPlan:
        at = max(best, 1e-300)
        return plan(
            releases, direction, delta=at, epsilon=epsilon, sought=0.0, relative=0.2 * _RELATIVE
        )

    for _ in range(6):
        where = look()
        grid = where.upper()
        yield grid, 1.0
        value = grid.delta_at(epsilon)
        done = not value < 0.1 * best
        best = float(np.fmin(best, value))
        if done:
            break
    grid = where.lower()
    yield grid, -1.0
    low = grid.delta_at(epsilon)
    if not best - low < 0.03 * best and where.direct is not None:
        where = look().direct or where
        grid = where.upper()
        yield grid, 1.0
        best = float(np.fmin(best, grid.delta_at(epsilon)))
        grid = where.lower()
        yield grid, -1.0
        low = float(np.fmax(low, grid.delta_at(epsilon)))
    while not best - low < 3e-3 * best and where.finer is not None:
        where = where.finer
        grid = where.lower()
        yield grid, -1.0
        low = float(np.fmax(low, grid.delta_at(epsilon)))


def delta(
    releases: Releases, direction: Direction, epsilon: float, guess: float
) -> tuple[float, float]:
    """Bounds of delta in one direction, (from below, from above); at most `guess`."""
    low, best = 0.0, guess
    for grid, sign in plan_near(releases, direction, epsilon, guess):
        value = grid.delta_at(epsilon)
        if sign > 0.0:
            best = float(np.fmin(best, value))
        else:
            low = float(np.fmax(low, value))
    return low, best
