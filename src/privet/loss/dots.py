"""Connect the dots: a loss moved to a grid of losses, so that its privacy profile only rises.

Between neighbouring grid points a < b, the P- and Q-mass of the losses in [a, b] is given to the
two ends so that both masses are kept. In alpha = e^epsilon the profile becomes piecewise linear
through its values on the grid; it was convex, so it only rises (Doroshenko, Ghazi, Kamath, Kumar
and Manurangsi 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import leggauss

from privet.loss.base import Array

_NODES, _WEIGHTS = leggauss(8)


@dataclass(frozen=True, kw_only=True)
class Dots:
    """P-masses at first * step, (first + 1) * step, ..., and the mass of losses beyond, counted as
    infinite."""

    first: int
    step: float
    masses: Array
    infinite: float
    errors: Array
    """Bounds of the relative errors of the masses."""

    @property
    def losses(self) -> Array:
        return self.step * (self.first + np.arange(len(self.masses)))


def from_profile(profile: Callable[[Array], Array], *, step: float, first: int, last: int) -> Dots:
    """From the profile alone: the slope between two alphas is minus the Q-mass above them.

    The differences cancel digits, which amounts to a perturbation of the profile by its rounding
    error; that is added to the infinite mass.
    """
    values = profile(step * np.arange(first, last + 1))
    # alpha_j times the slope into j; nothing overflows
    slope = np.maximum(values[:-1] - values[1:], 0.0) / -math.expm1(-step)
    scaled = np.concatenate([[1.0 - values[0]], slope, [0.0]])
    masses = np.maximum(scaled[:-1] - scaled[1:] * math.exp(-step), 0.0)
    return Dots(
        first=first,
        step=step,
        masses=masses,
        infinite=float(values[-1]) + 2e-15,
        errors=np.zeros(len(masses)),
    )


def from_density(
    *,
    loss: Callable[[Array], Array],
    inverse: Callable[[Array], Array],
    density: Callable[[Array], Array],
    low: float,
    high: float,
    panel: float,
    beyond: float,
    step: float,
    first: int,
    last: int,
) -> Dots:
    """From a loss that increases with a variable u of known density: every mass to nearly full
    relative precision.

    With h = step the upper end of [a, b] gets the integral of (1 - e^(a - L)) dP / (1 - e^-h), the
    lower end that of (e^(b - L) - 1) dP / (e^h - 1), by Gauss-Legendre sums over panels cut at the
    grid's own points.
    """
    ends = step * np.arange(first, last + 1)
    at = np.clip(inverse(ends), low, high)
    cuts = np.union1d(at, np.arange(low, float(at[-1]), panel))
    cuts = np.union1d(cuts[cuts <= at[-1]], [low])
    left, width = cuts[:-1], np.diff(cuts)
    cell = np.clip(np.searchsorted(at, left + 0.5 * width, side="right"), 0, last - first)
    u = left[:, None] + 0.5 * width[:, None] * (_NODES + 1.0)[None, :]
    weight = 0.5 * width[:, None] * _WEIGHTS[None, :] * density(u)
    below, above = ends[np.maximum(cell - 1, 0), None], ends[cell, None]
    value = np.clip(loss(u), below, above)
    up = np.sum(weight * -np.expm1(below - value), axis=1) / -math.expm1(-step)
    down = np.sum(weight * np.expm1(above - value), axis=1) / math.expm1(step)
    masses = np.zeros(len(ends))
    lowest = cell == 0
    np.add.at(masses, cell[~lowest], up[~lowest])
    np.add.at(masses, cell[~lowest] - 1, down[~lowest])
    masses[0] += float(np.sum(weight[lowest]))
    missing = 1.0 - float(np.sum(masses)) - beyond
    if missing > 1e-9:  # cannot be rounding: whatever was left out counts as infinite
        beyond += missing
    errors = 2.3e-16 * (16.0 + np.abs(ends) / step)
    return Dots(first=first, step=step, masses=masses, infinite=beyond, errors=errors)
