"""The pairs of laws behind one sampled Gaussian step: thresholds, profile, loss and density."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from privet.loss import moments
from privet.loss.base import Array, Direction
from privet.loss.dots import Dots, from_density

_SQRT_2PI = math.sqrt(2.0 * math.pi)


def inverse_log_ratio(epsilon: Array, q: float) -> Array:
    """The t with log(1 - q + q e^t) = epsilon; -inf where there is none."""
    with np.errstate(divide="ignore"):
        near = np.log1p(np.maximum(np.expm1(np.minimum(epsilon, 30.0)) / q, -1.0))
    far = epsilon - math.log(q) + np.log1p(-(1.0 - q) * np.exp(-np.maximum(epsilon, 30.0)))
    return np.where(epsilon > 30.0, far, near)


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


@dataclass(frozen=True, kw_only=True)
class Law:
    """The loss of one step as an increasing function of a real variable with a density."""

    loss: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    density: Callable[[Array], Array]
    high: float
    panel: float

    def dots(self, *, beyond: float, step: float, first: int, last: int) -> Dots:
        """The law on a grid of losses, above the truth by connecting the dots."""
        return from_density(
            loss=self.loss,
            inverse=self.inverse,
            density=self.density,
            low=-38.0,  # beyond 38 standard deviations a double has no probability left
            high=self.high,
            panel=self.panel,
            beyond=beyond + 1e-310,
            step=step,
            first=first,
            last=last,
        )


def law(q: float, z: float, way: Direction | None) -> Law:
    """The law of one step's loss: by direction for add-remove, None for replace-one."""
    rate, panel = np.array(q), min(0.25, 0.5 * z)

    def ratio(u: Array) -> Array:
        return moments.log_ratio(rate, u / z - 0.5 / z**2)

    def back(epsilon: Array) -> Array:
        return z * inverse_log_ratio(epsilon, q) + 0.5 / z

    def without(u: Array) -> Array:
        return np.asarray(np.exp(-0.5 * u**2) / _SQRT_2PI)

    def with_unit(u: Array) -> Array:
        return (1.0 - q) * without(u) + q * without(u - 1.0 / z)

    if way is Direction.ADD:
        return Law(
            loss=lambda v: -ratio(-v),
            inverse=lambda e: -back(-e),
            density=without,
            high=38.0,
            panel=panel,
        )
    top = 38.0 + 1.0 / z
    if way is Direction.REMOVE:
        return Law(loss=ratio, inverse=back, density=with_unit, high=top, panel=panel)
    return Law(
        loss=lambda u: ratio(u) - ratio(-u),
        inverse=lambda e: _replace_one_threshold(e, q, z) / z,
        density=with_unit,
        high=top,
        panel=panel,
    )
