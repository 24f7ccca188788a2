"""Composition of discretised losses by one transform: few or wild steps, tiny epsilon or delta.

Each elementary loss is moved to a grid (`privet.accounting.discretise`), up or down. Losses on a
grid compose by multiplying their transforms, taken on the line Re z = order, so that small
probabilities keep their digits. The inverse transform at the grid's frequencies is exactly sum_m
e^(order m P) delta(epsilon + m P), never too small; for a bound from below the other terms are
bounded and taken off. The rounding errors of the transforms are bounded in the 2-norm and added, or
taken off. Step by step in docs/theory/contour.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privet.accounting.discretise import GridLoss
from privet.accounting.privacy_loss import (
    LARGEST_EXPONENT,
    MANY_ROUNDINGS,
    NEXT_TO_ZERO,
    ROUNDOFF,
    TINY,
    Array,
)

_TRANSFORM = 10.0 * ROUNDOFF
"""Relative error of a fast Fourier transform in the 2-norm, for each binary digit of its size.

Higham 2002, theorem 24.2: 4 sqrt(2) + 1 with accurate weights; the rest is a margin."""

_COARSE = LARGEST_EXPONENT
"""Of a step beyond this e^step is no float64, and the 1 beside it is no digit of it."""


@dataclass(frozen=True, kw_only=True)
class ProfileOnGrid:
    """Bounds of delta at epsilon = 0, step, 2 step, ... of one composed law on a grid."""

    step: float
    deltas: Array
    shift: float
    """What has to be added to an epsilon read off here."""

    def epsilon_above(self, delta: float) -> float:
        """The least epsilon with a bound of at most `delta`; linear in alpha between points."""
        under = np.nonzero(self.deltas <= delta)[0]
        if len(under) == 0:
            return math.inf
        return self._between(int(under[0]), delta) * (1.0 + MANY_ROUNDINGS) + self.shift

    def epsilon_below(self, delta: float) -> float:
        """The largest epsilon with a bound of more than `delta`."""
        over = np.nonzero(self.deltas > delta)[0]
        if len(over) == 0:
            return 0.0
        n = int(over[-1])
        here = self._between(n + 1, delta) if n + 1 < len(self.deltas) else n * self.step
        return max(0.0, here * (1.0 - MANY_ROUNDINGS) + self.shift)

    def _between(self, n: int, delta: float) -> float:
        if n == 0:
            return 0.0
        above, below = float(self.deltas[n - 1]), float(self.deltas[n])
        share = min(1.0, (above - delta) / (above - below))
        if self.step > _COARSE:
            return (n - 1) * self.step + (max(0.0, self.step + math.log(share)) if share else 0.0)
        return (n - 1) * self.step + math.log1p(share * math.expm1(self.step))

    def delta_at(self, epsilon: float) -> float:
        """The bound at any epsilon, linear in alpha between points; nan outside the grid."""
        at = max(epsilon - self.shift, 0.0) / self.step
        n = math.floor(at)
        if n + 1 >= len(self.deltas):
            return math.nan
        if self.step > _COARSE:
            share = math.exp((at - n - 1.0) * self.step)
        else:
            share = math.expm1((at - n) * self.step) / math.expm1(self.step)
        return float((1.0 - share) * self.deltas[n] + share * self.deltas[n + 1])


@dataclass(frozen=True, kw_only=True)
class _Tilted:
    """The transform of one release's law on the grid, tilted by e^(order loss)."""

    count: int
    values: Array
    """Relative to the whole mass, at most 1."""
    doubt: float
    """Bounds the error of the values in the 2-norm."""
    log_scale: float


def _tilt(law: GridLoss, count: int, order: float, size: int, sign: float) -> _Tilted:
    with np.errstate(divide="ignore"):
        tilted = np.log(law.masses) + order * law.losses
    top = float(np.max(tilted))
    weights = np.exp(tilted - top)
    place = (law.first + np.arange(len(weights))) % size
    wrapped = np.bincount(place, weights=weights, minlength=size)
    whole = max(float(np.sum(wrapped)), TINY)
    values = np.conj(np.fft.rfft(wrapped)) / whole  # numpy's transform has the sign e^(-i w x)
    spread = math.sqrt(float(np.dot(wrapped, wrapped))) / whole
    # twice the roundings of log, product and sum; 745 = -log of the smallest float64 above 0
    rounding = 8.0 * ROUNDOFF * (745.0 + order * float(np.max(np.abs(law.losses))) + abs(top))
    return _Tilted(
        count=count,
        values=values,
        doubt=(_TRANSFORM * math.log2(size) + 4.0 * ROUNDOFF) * math.sqrt(size) * spread,
        log_scale=count * (top + math.log(whole) + sign * rounding),
    )


def transform_sums(
    laws: Sequence[tuple[GridLoss, int]], *, order: float, step: float, size: int, sign: float
) -> tuple[Array, float]:
    """Evaluate (e^(log scale) sums at epsilon = 0, step, ..., and the log scale), with rounding put
    on the side of `sign`."""
    parts = [_tilt(law, count, order, size, sign) for law, count in laws]
    z = order + 2j * math.pi * np.arange(size // 2 + 1) / (size * step)
    # the transform of (1 - e^(-y))_+ on the grid y = 0, h, 2h, ..., free of cancellation
    kernel = np.exp(-z * step) * -math.expm1(-step)
    kernel = kernel / (np.expm1(-z * step) * np.expm1(-(z + 1.0) * step))
    logs, most = np.zeros(len(z), dtype=complex), np.zeros(len(z))
    rounding = np.full(len(z), 64.0 * ROUNDOFF)  # of the kernel: 3 expm1, exp, 4 complex products
    for part in parts:
        size_of = np.abs(part.values)
        safe = np.where(size_of < NEXT_TO_ZERO, NEXT_TO_ZERO, part.values)
        log = np.log(safe)
        logs += part.count * log
        most += part.count * np.log(size_of + part.doubt)
        rounding += 4.0 * ROUNDOFF * part.count * (1.0 + np.abs(log))
    terms = np.exp(logs) * kernel
    sums = np.fft.irfft(np.conj(terms), size)[: size // 2]
    # every term but the first and the last counts twice: half of the spectrum is stored
    slack = (
        2.0 / size * float(np.sum(np.abs(terms) * np.expm1(np.minimum(rounding, LARGEST_EXPONENT))))
    )
    slack += (
        _TRANSFORM * math.log2(size) * math.sqrt(2.0 / size * float(np.sum(np.abs(terms) ** 2)))
    )
    with np.errstate(over="ignore"):  # infinite: nothing is known
        weight = np.abs(kernel) * np.exp(most)
    for part in parts:
        rest = weight / (np.abs(part.values) + part.doubt)
        norm = math.sqrt(2.0 * float(np.dot(rest, rest)))
        slack += part.count / size * norm * part.doubt
    log_scale = math.fsum(part.log_scale for part in parts)
    return np.maximum(sums + sign * slack, 0.0), log_scale


def convolve(laws: Sequence[tuple[GridLoss, int]], *, step: float, sign: float) -> Array:
    """delta of the finite part at epsilon = 0, step, ..., by direct convolution of the masses.

    All terms are positive, so that a value is good to a few roundings for each of its terms,
    however small it is. With C_n = sum_{k > n} m_k e^(-(k - n - 1) h),
    delta_n = delta_{n+1} + (1 - e^-h) C_n.
    """
    masses, first, terms = np.ones(1), 0, 16.0  # roundings of a term: a margin, and its sums
    for law, count in laws:
        for _ in range(count):
            terms += 2.0 * len(law.masses)
            masses = np.convolve(masses, law.masses)
            first += law.first
    masses = masses[max(1 - first, 0) :] if first <= 0 else np.append(np.zeros(first - 1), masses)
    if len(masses) == 0:
        return np.zeros(2)
    from scipy.signal import lfilter  # a second to import, and rarely needed

    slopes = lfilter([1.0], [1.0, -math.exp(-step)], masses[::-1])
    deltas = np.cumsum(slopes)[::-1] * -math.expm1(-step)
    # the filter and the sum take four roundings each for every point that they come by
    grow = 1.0 + sign * ROUNDOFF * (terms + 8.0 * len(masses))
    return np.append(deltas * grow, [0.0, 0.0]) + (TINY if sign > 0.0 else 0.0)


def _infinite(laws: Sequence[tuple[GridLoss, int]], sign: float) -> float:
    """The mass of at least one infinite loss."""
    survive = scale = 0.0
    for law, count in laws:
        whole = float(np.sum(law.masses)) + law.infinite
        survive += count * math.log1p(-law.infinite / whole) if law.infinite < whole else -math.inf
        scale += count * math.log(whole)
    if (
        scale > LARGEST_EXPONENT
    ):  # rounding alone has grown the masses past all bounds: nothing is known
        return math.inf if sign > 0.0 else 0.0
    return -math.expm1(survive) * math.exp(scale) * (1.0 + sign * MANY_ROUNDINGS)


def _log_moment(laws: Sequence[tuple[GridLoss, int]], order: float) -> float:
    """log E[e^(order L)] of the finite part of the composed law, rounded up."""
    total = 0.0
    for law, count in laws:
        if not law.masses.any():
            return -math.inf
        with np.errstate(divide="ignore"):
            tilted = np.log(law.masses) + order * law.losses
        top = float(np.max(tilted))
        total += count * (top + math.log(float(np.sum(np.exp(tilted - top)))) + MANY_ROUNDINGS)
    return total


def _read(
    laws: Sequence[tuple[GridLoss, int]], *, order: float, step: float, size: int, sign: float
) -> tuple[Array, Array]:
    epsilons = step * np.arange(size // 2)
    if not all(law.masses.any() for law, _ in laws):  # every loss of some release is infinite
        return epsilons, np.zeros(len(epsilons))
    sums, log_scale = transform_sums(laws, order=order, step=step, size=size, sign=sign)
    with np.errstate(divide="ignore"):
        logs = log_scale - order * epsilons + np.log(sums)
    return epsilons, np.exp(np.minimum(logs, 0.0)) * (1.0 + sign * MANY_ROUNDINGS)


def _shift(laws: Sequence[tuple[GridLoss, int]]) -> float:
    return math.fsum(count * law.shift for law, count in laws) * (1.0 + MANY_ROUNDINGS)


def upper_grid(
    laws: Sequence[tuple[GridLoss, int]], *, order: float, step: float, size: int
) -> ProfileOnGrid:
    """delta of the composed law, never too small; a size of 0 stands for direct convolution."""
    if size:
        _, finite = _read(laws, order=order, step=step, size=size, sign=1.0)
    else:
        finite = convolve(laws, step=step, sign=1.0)
    return ProfileOnGrid(step=step, deltas=finite + _infinite(laws, 1.0), shift=_shift(laws))


def lower_grid(
    laws: Sequence[tuple[GridLoss, int]], *, order: float, step: float, size: int
) -> ProfileOnGrid:
    """delta of the composed law, never too large: the shifted copies are bounded and taken off."""
    shift = _shift(laws)
    if size:
        epsilons, finite = _read(laws, order=order, step=step, size=size, sign=-1.0)
        finite = finite - _copies(laws, epsilons, order=order, period=step * size)
    else:
        finite = convolve(laws, step=step, sign=-1.0)
        epsilons = step * np.arange(len(finite))
    deltas = np.maximum(finite, 0.0) + _infinite(laws, -1.0) - _too_high(laws, epsilons, -shift)
    return ProfileOnGrid(step=step, deltas=deltas, shift=shift)


def _copies(
    laws: Sequence[tuple[GridLoss, int]], epsilons: Array, *, order: float, period: float
) -> Array:
    """A bound of sum over m != 0 of e^(order m P) delta(epsilon + m P).

    To the left delta is at most 1; to the right it obeys the Renyi bound of a larger order t.
    """
    left = 1.0 / math.expm1(min(order * period, LARGEST_EXPONENT)) * (1.0 + MANY_ROUNDINGS)
    end = math.fsum(count * float(law.losses[-1]) for law, count in laws)
    if end <= period:  # there is no loss as large as a copy to the right would need
        return np.full(len(epsilons), left)
    right = np.full(len(epsilons), math.inf)
    for t in order * np.array([1.1, 1.3, 1.7, 2.5, 4.0]):  # any is a bound; the least is taken
        ratio = math.exp(-min((t - order) * period, LARGEST_EXPONENT))
        c = t * math.log(t) - (t + 1.0) * math.log1p(t)
        logs = np.minimum(_log_moment(laws, t) + c - t * epsilons, LARGEST_EXPONENT)
        # the exponent, of some thousands at most, is good to a few roundings: e^ of it to 1e-9
        right = np.minimum(right, np.exp(logs) * ratio / (1.0 - ratio) * (1.0 + 1e-9))
    return left + right


def _too_high(laws: Sequence[tuple[GridLoss, int]], epsilons: Array, shift: float) -> Array:
    """Bound how much too high the infinite masses of lower laws make delta.

    The mass above the last end is right where the other losses leave epsilon below that end; where
    they do not it is too high by itself at most. So its probability times that of the others being
    so low is taken off.
    """
    excess = math.fsum(count * law.infinite for law, count in laws)
    if excess == 0.0:
        return np.zeros(len(epsilons))
    missing = math.fsum(
        count * max(0.0, 1.0 - float(np.sum(law.masses)) - law.infinite) for law, count in laws
    )
    last = min(float(law.losses[-1]) for law, _ in laws) + 0.5 * laws[0][0].step
    lowest = math.fsum(count * float(law.losses[0]) for law, count in laws)
    highest = max(max(float(law.losses[0]) for law, _ in laws), 0.0)
    room = last - shift - epsilons  # the others have to stay above minus this
    chance = np.where(room >= -(lowest - highest), 0.0, 1.0)
    if np.any(chance > 0.0):
        # orders of a Chernoff bound, in units of the lowest sum: any is a bound, the least is taken
        for t in np.geomspace(0.5, 500.0, 12) / max(abs(lowest), TINY):
            k = 0.0
            least = math.inf
            for law, count in laws:
                weights = np.append(law.masses, law.infinite)
                losses = np.append(law.losses, law.losses[-1])
                with np.errstate(divide="ignore"):
                    tilted = np.log(weights) - t * losses
                top = float(np.max(tilted))
                one = top + math.log(float(np.sum(np.exp(tilted - top)))) + MANY_ROUNDINGS
                k, least = k + count * one, min(least, one)
            chance = np.minimum(chance, np.exp(np.minimum(k - min(least, 0.0) - t * room, 0.0)))
    return excess * np.minimum(chance + missing, 1.0)
