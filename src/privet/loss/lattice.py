"""Composition of discretised losses by one transform, for parts that the contour cannot resolve.

Each elementary loss is moved to a grid (`privet.loss.dots`), which only raises its profile. Losses
on a grid compose by multiplying their transforms, taken on the line Re z = order, so that small
probabilities keep their digits. The inverse transform at the grid's frequencies is exactly sum_m
e^(order m P) delta(epsilon + m P), again never too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privet.loss.base import Array, Direction, Part
from privet.loss.contour import Renyi, tolerance_of


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
    errors: Array
    """Bounds of the relative errors of the transform."""
    infinite: float

    def deltas(self) -> tuple[Array, Array, Array]:
        """epsilon_n = n step over half the period, delta there, and the share of slack in it."""
        h, lam = self.step, self.order
        w = 2.0 * math.pi * np.arange(self.size // 2 + 1) / (self.size * h)
        z = lam + 1j * w
        # the transform of (1 - e^(-y))_+ on the grid y = 0, h, 2h, ...
        kernel = 1.0 / -np.expm1(-z * h) - 1.0 / -np.expm1(-(z + 1.0) * h)
        terms = self.transform * kernel
        doubt = np.abs(terms) * np.expm1(np.minimum(self.errors, 700.0))
        doubt = np.minimum(doubt, np.abs(terms) + np.abs(kernel))  # the truth has |transform| <= 1
        slack = 2.0 / self.size * float(np.sum(doubt))
        sums = np.maximum(np.fft.irfft(np.conj(terms), self.size), 0.0) + slack
        half = self.size // 2
        epsilons, sums = h * np.arange(half), sums[:half]
        logs = self.log_scale - lam * epsilons + np.log(sums)
        return epsilons, np.exp(np.minimum(logs, 0.0)) + self.infinite, slack / sums


def compose(
    parts: Sequence[Part],
    direction: Direction,
    *,
    order: float,
    step: float,
    size: int,
    delta: float,
) -> Grid:
    """The law of the sum of all parts on a grid of `size` points (periodic)."""
    total = np.zeros(size // 2 + 1, dtype=complex)
    errors = np.full(size // 2 + 1, 1e-15 * math.log2(size))
    log_scale, survive, releases = 0.0, 0.0, sum(p.releases for p in parts)
    for part in parts:
        for single, count in part.singles():
            low, high = _range(single, direction, 1e-5 * delta / releases)
            dots = single.dots(
                direction,
                step=step,
                first=math.floor(low / step) - 1,
                last=math.ceil(high / step) + 1,
            )
            with np.errstate(divide="ignore"):
                tilted = np.log(dots.masses) + order * dots.losses
            top = float(np.max(tilted))
            weights = np.exp(tilted - top)
            wrapped = np.bincount(
                (dots.first + np.arange(len(weights))) % size, weights=weights, minlength=size
            )
            # numpy's forward transform has the sign e^(-i w x)
            values = np.conj(np.fft.rfft(wrapped))
            whole = float(values[0].real)
            values = values / whole
            values = np.where(np.abs(values) < 1e-290, 1e-290, values)
            total = total + count * np.log(values)
            masses_error = float(np.sum(weights * dots.errors)) / whole
            rounding = (masses_error + 2.3e-16 * (4.0 + math.log2(size))) / np.abs(values)
            errors = errors + count * rounding
            log_scale += count * (top + math.log(whole))
            survive += count * math.log1p(-dots.infinite)
    return Grid(
        step=step,
        size=size,
        order=order,
        log_scale=log_scale,
        transform=np.exp(total),
        errors=errors,
        infinite=-math.expm1(survive),
    )


def _curves(
    parts: Sequence[Part], direction: Direction, *, delta: float, guess: float
) -> Iterator[tuple[Array, Array, Array]]:
    """Upper bounds on two grids that resolve epsilon near `guess`.

    Where rare large losses decide, the Renyi curve suggests too small an order, so that twice the
    order is tried too.
    """
    releases = sum(p.releases for p in parts)
    renyi = Renyi(parts=parts, direction=direction, cut=1e-4 * delta / releases)
    best = min(renyi.delta(guess)[1], 1e5)
    singles = [s for p in parts for s, _ in p.singles()]
    longest = max(_range(s, direction, 1e-5 * delta / releases)[1] for s in singles)
    for order in (best, 2.0 * best):
        decay = 2.0 * (math.log(1e6) - math.log(delta)) / order
        period = max(4.0 * guess, 1.5 * (guess + longest), decay)
        # rounding a loss to the grid spreads it by at most step^2 / 4, as one more Gaussian release
        # would
        allowed = 0.5 * tolerance_of(guess)
        step = math.sqrt(8.0 * allowed / ((order + 1.0) * releases))
        size = 1 << min(20, max(10, math.ceil(math.log2(period / step))))
        grid = compose(parts, direction, order=order, step=period / size, size=size, delta=delta)
        yield grid.deltas()


def applies(parts: Sequence[Part], direction: Direction) -> bool:
    """Whether every release has a profile, and there are few enough distinct ones."""
    singles = (
        [s for p in parts for s, _ in p.singles()] if sum(p.distinct for p in parts) < 64 else []
    )
    return bool(singles) and all(s.profile(np.zeros(1), direction) is not None for s in singles)


def epsilon(
    parts: Sequence[Part], direction: Direction, delta: float, guess: float
) -> tuple[float, bool]:
    """An epsilon that is never too small (at most `guess`), and whether it is known to be tight."""
    best, tight = guess, False
    for _ in range(5):
        before = best
        for epsilons, deltas, slack in _curves(parts, direction, delta=delta, guess=best):
            value, n = crossing(epsilons, deltas, delta)
            if value < best:
                best, tight = value, bool(slack[n] < 1e-3)
        if best > before - tolerance_of(before):  # the grid was made for this epsilon
            break
    return best, tight


def crossing(epsilons: Array, deltas: Array, delta: float) -> tuple[float, int]:
    """Where delta is first reached; linear in alpha between points, which is exact for a law on the
    grid."""
    under = np.nonzero(deltas <= delta)[0]
    if len(under) == 0:
        return math.inf, -1
    n = int(under[0])
    if n == 0:
        return 0.0, 0
    share = (deltas[n - 1] - delta) / (deltas[n - 1] - deltas[n])
    lower, upper = float(epsilons[n - 1]), float(epsilons[n])
    return min(upper, lower + math.log1p(share * math.expm1(upper - lower)) * (1.0 + 1e-12)), n


def delta(parts: Sequence[Part], direction: Direction, epsilon: float, guess: float) -> float:
    """A delta that is never too small, at most `guess`."""
    for epsilons, deltas, _ in _curves(parts, direction, delta=max(guess, 1e-300), guess=epsilon):
        n = int(np.searchsorted(epsilons, epsilon, side="right")) - 1
        if n < len(deltas):
            guess = min(guess, float(deltas[n]))
    return guess
