"""The pairs of laws behind one sampled Gaussian step: thresholds, profile, masses."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from privet.loss.base import Array, Direction
from privet.loss.intervals import Intervals, Line
from privet.loss.mixture import inverse_log_ratio


def _replace_one_threshold(epsilon: Array, q: float, z: float) -> Array:
    """The x at which the loss of the replace-one pair is epsilon.

    q e^-c y^2 + (1-q)(1-alpha) y - alpha q e^-c = 0 with y = e^(x/z^2), c = 1/(2 z^2), divided by
    e^(epsilon/2) y; then x = z^2 (epsilon/2 + asinh h), with log h kept apart, as h may overflow.
    """
    size = np.abs(epsilon)
    odds = math.log1p(-q) - math.log(q) if q < 1.0 else -math.inf
    with np.errstate(divide="ignore"):
        log_half = odds + 0.5 / z**2 + size / 2.0 + np.log(-np.expm1(-size)) - math.log(2.0)
    near = np.arcsinh(np.exp(np.minimum(log_half, 20.0)))
    far = np.where(log_half > 20.0, log_half + math.log(2.0), near)
    return np.asarray(np.sign(epsilon) * z**2 * (size / 2.0 + far))


def replace_one_profile(epsilon: Array, q: float, z: float) -> Array:
    """H of (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1).

    The loss grows with x, so one threshold decides. The difference of two tails cancels, so that
    its rounding error is added.
    """
    sign = np.abs(epsilon)
    x = _replace_one_threshold(sign, q, z)
    rest = math.log1p(-q) if q < 1.0 else -math.inf
    above = np.exp(rest + log_ndtr(-x / z)) + np.exp(math.log(q) + log_ndtr((1.0 - x) / z))
    bulk = np.minimum(sign + rest + log_ndtr(-x / z), 0.0)
    moved = np.minimum(sign + math.log(q) + log_ndtr((-1.0 - x) / z), 0.0)
    other = np.exp(bulk) + np.exp(moved)
    exponents = 1.0 + sign + (x / z) ** 2 + 1.0 / z**2  # whose rounding is relative
    value = np.maximum(above - other, 0.0) + 4.5e-16 * exponents * (above + other)
    # the pair is symmetric: delta(-e) = 1 - e^-e + e^-e delta(e)
    return np.asarray(np.where(epsilon >= 0, value, -np.expm1(-sign) + np.exp(-sign) * value))


def intervals(q: float, z: float, way: Direction | None, ends: Array) -> Intervals:
    """The loss of one step between ends: by direction for add-remove, None for replace-one."""
    move = 1.0 / z

    def back(epsilon: Array) -> Array:
        return z * inverse_log_ratio(epsilon, q) + 0.5 * move

    if way is Direction.REMOVE:
        return Line(left=move, left_rate=q, right=0.0, right_rate=0.0).intervals(ends, back)
    if way is Direction.ADD:
        line = Line(left=0.0, left_rate=0.0, right=-move, right_rate=q)
        return line.intervals(ends, lambda e: -back(-e))
    line = Line(left=move, left_rate=q, right=-move, right_rate=q)
    return line.intervals(ends, lambda e: _replace_one_threshold(e, q, z) / z)
