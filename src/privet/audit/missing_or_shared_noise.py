"""Numbers of a release without noise of their own, or two that share it, found from draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
PAIR_CANDIDATES = 500
"""Numbers among which a pair is looked for, those that the neighbours move most: their products
are a matrix of 250,000 numbers."""


def hidden_shift(noise: Array, moved: Array, *, alpha: float, pairs: bool = True) -> float:
    """A lower bound of mu from single numbers and one pair, wrong with probability alpha.

    `noise` and `moved` have a line for each run and a column for each number: what was drawn, and
    how far the neighbours moved it. Needs no independence of anything but the runs.

    >>> from privet.noise import seeded
    >>> noise, moved = seeded(0).gaussian((100, 3)), np.ones((100, 3))
    >>> bool(0.5 < hidden_shift(noise, moved, alpha=0.01) < 1.3)
    True
    >>> noise[:, 1] = -noise[:, 0]
    >>> hidden_shift(noise, moved, alpha=0.01)
    inf
    """
    least = _least(moved)
    if not noise.size or not least.any():
        return 0.0
    single = _most(least, np.square(noise).sum(axis=0), alpha / 2.0 / noise.shape[1], len(noise))
    known, rest = noise[::2], noise[1::2]
    at = np.argsort(-least, kind="stable")[:PAIR_CANDIDATES]
    if not pairs or len(at) < 2 or len(known) < 10:
        return single
    i, j, weight = _pair(known, moved[::2].mean(axis=0), at)
    both = _least((moved[:, i] - weight * moved[:, j])[:, None])
    left = np.square(rest[:, i] - weight * rest[:, j]).sum()
    return max(single, _most(both, np.array([left]), alpha / 2.0, len(rest)))


def _pair(noise: Array, moved: Array, at: NDArray[np.int64]) -> tuple[int, int, float]:
    """Two numbers, and how much of the second to take from the first, so that it shows most."""
    products = noise[:, at].T @ noise[:, at]
    own = np.diag(products) + 1e-300
    weights = products / own
    left = np.maximum(own[:, None] - weights * products, 1e-12 * own[:, None])
    shown = np.square(moved[at, None] - weights * moved[at]) / left
    np.fill_diagonal(shown, -1.0)
    i, j = np.unravel_index(int(shown.argmax()), shown.shape)
    return int(at[i]), int(at[j]), float(weights[i, j])


def _least(moved: Array) -> Array:
    """How far each number is moved at least, always to the same side."""
    one_side = (moved > 0.0).all(axis=0) | (moved < 0.0).all(axis=0)
    return np.where(one_side, np.abs(moved).min(axis=0), 0.0)


def _most(least: Array, squares: Array, alpha: float, runs: int) -> float:
    """The largest ratio of what is moved to an upper limit of the noise's width."""
    width = np.sqrt(squares / float(stats.chi2.ppf(alpha, runs)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: NDArray[Any] = np.where(least > 0.0, least / width, 0.0)
    # noise below the rounding of float64 is none
    return math.inf if bool(((width <= 1e-9 * least) & (least > 0.0)).any()) else float(ratio.max())
