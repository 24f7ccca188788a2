"""Pessimistic and optimistic discretisation of a privacy loss distribution on a grid.

*Up*: connect the dots. In an interval [a, b] of losses with P-mass p and Q-mass m, all of it is
given to the two ends so that both masses are kept; what lies above the last point goes to that
point and to infinity in the same way. In alpha = e^epsilon the profile becomes piecewise linear
through its values on the grid; it was convex, so it only rises (Doroshenko, Ghazi, Kamath, Kumar
and Manurangsi 2022).

*Down*: merge. An interval about a grid point becomes one outcome of loss log(p/m), which only tells
less, and that outcome is moved down to the grid. Proofs, and how rounding is turned to the same
side, are in docs/theory/contour.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privet.accounting.privacy_loss import FEW_ROUNDINGS, TINY, Array
from privet.accounting.privacy_loss_histograms import LossHistogram

_MASSES = 1e-14
"""90 roundings, relatively: of a share, a product and the sum of the masses at a point."""


@dataclass(frozen=True, kw_only=True)
class GridLoss:
    """P-masses at first * step + shift, (first + 1) * step + shift, ..., and at infinity."""

    first: int
    step: float
    masses: Array
    infinite: float
    shift: float
    """Added to every loss: a little above 0 for dots that are too high, below for too low ones."""

    @property
    def losses(self) -> Array:
        """The losses of the grid points, without the shift."""
        return self.step * (self.first + np.arange(len(self.masses)))


def _last(histogram: LossHistogram, last: float, sign: float) -> tuple[float, float]:
    """The mass above the last point, cut in two: (at infinity, at the point)."""
    level = histogram.above_level + sign * (histogram.above_doubt + FEW_ROUNDINGS * abs(last))
    share = -math.expm1(min(0.0, last - level))
    return histogram.above * share, histogram.above * (1.0 - share)


def round_up(histogram: LossHistogram, *, step: float, first: int) -> GridLoss:
    """Connect the dots; `histogram` belongs to the ends step * (first, first + 1, ...).

    Every error of the masses is turned into more mass or a larger loss: relative errors of p grow
    it, errors of log(p/m) raise the share of the upper end, losses that rounding put outside their
    interval raise all of them by `edge`.
    """
    ends = step * (first + np.arange(len(histogram.p) + 1))
    level = np.clip(histogram.level, ends[:-1], ends[1:]) + histogram.doubt + histogram.edge
    rounding = FEW_ROUNDINGS * (1.0 + np.abs(ends[:-1]))
    share = -np.expm1(np.minimum(ends[:-1] - level - rounding, 0.0)) / -math.expm1(-step)
    share = np.clip(share * (1.0 + FEW_ROUNDINGS), 0.0, 1.0)
    masses = np.zeros(len(ends))
    masses[1:] += histogram.p * share
    masses[:-1] += histogram.p * (1.0 - share)
    masses[0] += histogram.below
    infinite, finite = _last(histogram, float(ends[-1]), 1.0)
    masses[-1] += finite
    grow = 1.0 + histogram.relative + _MASSES
    return GridLoss(
        first=first,
        step=step,
        masses=masses * grow,
        infinite=min(1.0, infinite * grow + TINY),
        shift=histogram.edge,
    )


def round_down(histogram: LossHistogram, *, step: float, first: int, order: float) -> GridLoss:
    """Merge and move down; `histogram` belongs to the ends step * (first - 1/2, first + 1/2, ...).

    The merged losses miss the grid points by a second-order amount. One shift for all of them moves
    them down to the grid; the few that would need more go to the next point below. `order` weighs
    what that costs. What is below the first end is left out.

    The mass above the last end is cut in two as in `round_up`. That is not lower by itself; it
    leaves the profile as it is at any epsilon below the last end, and the caller pays for the rest.
    """
    points = step * (first + np.arange(len(histogram.p)))
    short = (
        points
        - (histogram.level - histogram.doubt - histogram.edge)
        + FEW_ROUNDINGS * (1.0 + np.abs(points))
    )
    with np.errstate(divide="ignore"):
        tilted = np.log(histogram.p) + order * points
    weight = np.exp(tilted - max(float(np.max(tilted)), -1e300))  # finite without any mass
    # common shifts that are tried, up to half a step; any is sound, the cheapest is taken
    tries = step * np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 40)])
    which = np.argsort(short)
    above = np.concatenate([np.cumsum(weight[which][::-1])[::-1], [0.0]])
    moved = above[np.searchsorted(short[which], tries, side="right")] / max(float(above[0]), TINY)
    shift = float(tries[int(np.argmin(tries + step * moved))])
    down = np.where(short <= shift, 0, np.where(short <= shift + step, 1, 2))
    live = down < 2  # what even the next point cannot hold is left out
    index = np.arange(1, len(points) + 1) - down
    shrink = 1.0 - histogram.relative - _MASSES
    masses = np.bincount(index[live], weights=histogram.p[live] * shrink, minlength=len(points) + 2)
    infinite, finite = _last(histogram, float(points[-1] + 0.5 * step), -1.0)
    masses[-2] += finite * shrink  # at the last point, half a step lower than it could be
    return GridLoss(
        first=first - 1,
        step=step,
        masses=masses[:-1],
        infinite=infinite * shrink,
        shift=-shift,
    )
