"""The FFT accountant: it chooses the grid and answers bounds of epsilon and of delta.

A plan decides how tight the bounds are, never whether they hold
(`privet.accounting.fft_convolution`). Where a comment below says *by trial*, the number was varied
over the range given, for 21 losses of 2 to 60 releases at deltas of 1e-3, 1e-6 and 1e-11: epsilon
differed by less than 3e-4 of itself, and the time by less than a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.accounting import discretise
from privet.accounting.fft_convolution import ProfileOnGrid, lower_grid, upper_grid
from privet.accounting.privacy_loss import TINY, Array, Direction, LossPart
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
_DIRECT_POINTS = 4096
"""Of one release then (see `_MOST_DIRECT`)."""
_LITTLE = 0.05
"""Of the usual size of the loss: where epsilon is less, tolerances are relative to this, as in
`contour_integral.tolerance_of`."""
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
        return replace(self, step=max(self.step, (self.top - self.bottom) / _DIRECT_POINTS), size=0)

    @property
    def finer(self) -> GridPlan | None:
        """A plan with a quarter of the step, if that is not too dear; else None."""
        intervals = 4 * len(self.releases) * (self.top - self.bottom) / self.step
        if not 0 < 4 * self.size <= _FINEST or intervals > _MOST_INTERVALS:
            return None
        return replace(self, step=self.step / 4.0, size=4 * self.size)

    def upper(self) -> ProfileOnGrid:
        """Bound delta from above at the points of this grid."""
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
        """Bound delta from below at the points of this grid."""
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
    """Plan a grid: where the losses lie, the best order, a step for the tolerance, a period.

    `relative` is how much of epsilon rounding up to the grid may cost. Where epsilon is only a
    guess for the delta `sought`, it is lowered to what a coarse grid suggests; 0 leaves it alone.
    """
    total = sum(count for _, count in releases)
    bottom, far, spread, lowest = 0.0, 0.0, 0.0, 0.0
    for part, count in releases:
        histogram = _histogram(part, direction, _LOOK)
        under = histogram.below + np.cumsum(histogram.p)
        # a millionth may lie below the grid, a billionth of delta above it (by trial, 1e-9 to 1e-4,
        # and 1e-13 to 1e-6)
        low = float(_LOOK[int(np.searchsorted(under, 1e-6 / total))])
        over = histogram.above + np.cumsum(histogram.p[::-1])
        high = float(_LOOK[len(_LOOK) - 1 - int(np.searchsorted(over, 1e-9 * delta / total))])
        bottom, far = min(bottom, low), max(far, high)
        lowest += count * low
        # the usual size is that of all but the rarest thousandth (by trial, 1e-5 to 1e-2)
        usual = np.abs(histogram.level) < abs(_LOOK[int(np.searchsorted(over, 1e-3 / total))])
        spread += count * float(np.sum((histogram.p * histogram.level**2)[usual]))
    # how far a loss above epsilon can be made up for by the others: eight of their deviations (by
    # trial, 4 to 16), and 2% of room
    reach = min(-lowest, 8.0 * math.sqrt(spread) - bottom)
    top = max(min(far, 1.02 * epsilon + reach), TINY)
    order, chernoff = _order(
        releases, direction, bottom=bottom, top=top, epsilon=epsilon, delta=sought
    )
    epsilon = max(chernoff, 1e-3 * epsilon)  # above 0 (by trial, 1e-6 to 0.1)
    allowed = relative * max(epsilon, _LITTLE * math.sqrt(spread))
    # moving losses to points h apart adds at most h^2 / 4 to the variance of each release, and that
    # (order + 1) / 2 times to epsilon
    step = math.sqrt(8.0 * allowed / ((order + 1.0) * total))
    decay = (_ALIAS - math.log(delta)) / order
    # half of the period is read off, so that it has to hold epsilon twice; the sums of up to ten
    # large losses fit in (by trial: with 3 bounds are up to 1.5% wider, with 40 few are tighter)
    period = max(decay, 1.1 * epsilon + min(total, 10) * top, 2.2 * epsilon)
    least = (top - bottom) * len(releases) / _MOST_INTERVALS
    # 2^24 points in all transforms together are 128 MB; fewer than 2^8 save nothing
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
    """Find the order with the least e^(K(t) - t epsilon) / t (t+1) and its bound of epsilon, on a
    coarse grid; epsilon is lowered to what the bound gives at `delta` first."""
    cells = 1024  # by trial, 256 to 4096
    step = (top - bottom) / cells
    first = math.floor(bottom / step)
    ends = step * np.arange(first, first + cells + 3)
    # in units of the largest loss: below, the tilt is none, above, that loss is all that counts;
    # a fifth apart, as the best order is not sharp. 1e-100, 1e100 and 1e200 keep products finite
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

    for _ in range(4):  # plan again while the answer moves by a tenth (by trial, 1% to half)
        where = look()
        value = where.upper().epsilon_above(delta)
        done = value >= 0.9 * best
        best = min(best, value)
        if done or best <= 0.0:
            break
    low = where.lower().epsilon_below(delta)
    # rounding up and down cost about as much each: five times one of them is close (by trial, 3 to
    # 20), twenty times that is the transform's own rounding (by trial, 3 to 200)
    enough = 5.0 * _RELATIVE * max(best, _LITTLE * where.spread)
    if best - low > 20.0 * enough and where.direct is not None:
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
        at = max(best, TINY)
        # `relative`: delta moves by order * epsilon times what epsilon does, often 5 times and more
        return plan(
            releases, direction, delta=at, epsilon=epsilon, sought=0.0, relative=0.2 * _RELATIVE
        )

    for _ in range(6):  # plan again while delta falls tenfold: the guess may be far off
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
    # further apart than 3% is the transform's own rounding (by trial, 0.6% to 30%)
    if not best - low < 0.03 * best and where.direct is not None:
        where = look().direct or where
        grid = where.upper()
        yield grid, 1.0
        best = float(np.fmin(best, grid.delta_at(epsilon)))
        grid = where.lower()
        yield grid, -1.0
        low = float(np.fmax(low, grid.delta_at(epsilon)))
    # 3e-3 of delta is 1e-4 to 1e-3 of epsilon
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
