"""The privacy loss distribution (PLD) of one release: how likely its loss is in each interval.

For a dominating pair (P, Q) and increasing `ends`, each interval of losses has a P-probability p
and a Q-probability m, and log(p/m) lies between its ends. Both are differences of distribution
functions in the outcome, taken so that no digits cancel, with bounds of what rounding does to them
(docs/theory/contour.md, "The lattice").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr

from privet.accounting.privacy_loss import FEW_ROUNDINGS, LARGEST_EXPONENT, Array, Direction
from privet.accounting.sampled_likelihood_ratio import inverse_log_ratio, log_ratio_and_slope

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_FARTHEST = 1e6
"""Outcomes, in standard deviations, that count as infinite: e^(-5e11) is no double."""
_FUNCTIONS = 4e-13
"""Relative error allowed to the functions of the library: erfc, exp, log and sums of a few.

erfc is good to 1e-13; the rest is a margin of four."""


@dataclass(frozen=True, kw_only=True)
class LossHistogram:
    """The loss of ONE release in each interval (ends[j], ends[j+1]], and outside all of them."""

    p: Array
    """P-probabilities, relative error at most `relative`."""
    level: Array
    """log(p / m), absolute error at most `doubt`; anything where p = 0."""
    doubt: Array
    relative: float
    below: float
    """P-probability of a loss below the first end."""
    above: float
    """P-probability of a loss above the last end."""
    above_level: float
    above_doubt: float
    edge: float
    """A loss counted in an interval lies within this distance of it."""


def log_between(centre: Array, width: Array) -> Array:
    """log of the normal probability of [centre - width/2, centre + width/2], small or far out.

    A narrow interval by the Taylor series about its centre, whose terms are Hermite polynomials
    over (2k + 1)!; a wide one as a difference of tails, which differ enough there.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        # up to here what follows the term of degree 8 is below 1e-17 (docs/theory/contour.md)
        narrow = width * (np.abs(centre) + 1.0) <= 0.25
        c2, y = centre * centre, 0.25 * width * width
        he4 = (c2 - 6.0) * c2 + 3.0
        he6 = ((c2 - 15.0) * c2 + 45.0) * c2 - 15.0
        he8 = (((c2 - 28.0) * c2 + 210.0) * c2 - 420.0) * c2 + 105.0
        tail = y * (he4 / 120.0 + y * (he6 / 5040.0 + y * he8 / 362880.0))
        series = y * ((c2 - 1.0) / 6.0 + tail)
        near = -0.5 * c2 - LOG_SQRT_2PI + np.log(width) + np.log1p(np.where(narrow, series, 0.0))
    if np.all(narrow):
        return np.asarray(near)
    wide = ~narrow
    out = np.where(narrow, near, -np.inf)
    out[wide] = _log_difference(centre[wide] - 0.5 * width[wide], centre[wide] + 0.5 * width[wide])
    return out


def _log_difference(low: Array, high: Array) -> Array:
    """log(Phi(high) - Phi(low)), from the side of the smaller tails; ends may be infinite."""
    with np.errstate(invalid="ignore"):
        flip = low + high > 0.0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    top = log_ndtr(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.log1p(-np.exp(log_ndtr(a) - top))
    return np.where(np.isneginf(top), -np.inf, top + rest)


@dataclass(frozen=True, kw_only=True)
class GaussianMixturePair:
    """A pair of mixtures on the real line whose loss increases with the outcome.

    P = (1 - a) N + a N_left and Q = (1 - b) N + b N_right, where N_left and N_right are N moved by
    `left` and by `right`; the loss of sampled Gaussian releases in any direction is of this form.
    """

    left: float
    left_rate: float
    right: float
    right_rate: float

    def loss(self, u: Array) -> tuple[Array, Array]:
        """The loss at an outcome and a bound of the error of its computation."""
        value, doubt = np.zeros_like(u), np.zeros_like(u)
        for sign, q, move in self._sides():
            part, passed = log_ratio_and_slope(u * move - 0.5 * move * move, q)
            value = value + sign * part
            size = np.abs(u * move) + move * move
            doubt = doubt + FEW_ROUNDINGS * (np.abs(part) + passed * size)
        return value, doubt

    def _sides(self) -> list[tuple[float, float, float]]:
        sides = [(1.0, self.left_rate, self.left), (-1.0, self.right_rate, self.right)]
        return [side for side in sides if side[1] > 0.0]

    def histogram(self, ends: Array, inverse: Callable[[Array], Array]) -> LossHistogram:
        """The masses between losses; `inverse` may be rough, its errors are measured here."""
        with np.errstate(over="ignore"):
            u = np.maximum.accumulate(inverse(ends))
        # so far out that a double has no probability for it; `discretise.round_up` adds 1e-300
        u = np.where(np.abs(u) > _FARTHEST, np.copysign(np.inf, u), u)
        outcomes = u[np.isfinite(u)]
        edge = 0.0
        if len(outcomes):
            value, doubt = self.loss(outcomes)
            edge = float(np.max(np.abs(value - ends[np.isfinite(u)]) + doubt))
        with np.errstate(invalid="ignore"):
            inner = np.isfinite(u[:-1]) & np.isfinite(u[1:]) & (u[1:] > u[:-1])
            centre, width = 0.5 * (u[:-1] + u[1:]), u[1:] - u[:-1]
        log_p, level = np.full(len(width), -np.inf), np.zeros(len(width))
        doubt, farthest = np.zeros(len(width)), 0.0
        if np.any(inner):
            c, w = centre[inner], width[inner]
            log_p[inner], level[inner], doubt[inner] = self._ratio(
                lambda move: log_between(c - move, w), np.abs(c)
            )
            farthest = float(np.max(np.abs(c)))
        for j in np.nonzero(~inner & (u[1:] > u[:-1]))[0]:  # at most two that reach to infinity
            log_p[j], level[j], doubt[j] = self._between(float(u[j]), float(u[j + 1]))
        below = self._between(-math.inf, float(u[0])) if u[0] > -math.inf else (-math.inf, 0, 0)
        above = self._between(float(u[-1]), math.inf) if u[-1] < math.inf else (-math.inf, 0, 0)
        far = farthest + abs(self.left) + abs(self.right)
        return LossHistogram(
            p=np.exp(log_p),
            level=level,
            doubt=doubt,
            relative=_FUNCTIONS + FEW_ROUNDINGS * far * far,
            below=math.exp(below[0]),
            above=math.exp(above[0]),
            above_level=above[1] if above[0] > -LARGEST_EXPONENT else float(ends[-1]),
            above_doubt=above[2],
            edge=edge,
        )

    def _between(self, low: float, high: float) -> tuple[float, float, float]:
        ends = [e for e in (low, high) if math.isfinite(e)]

        def log_mass(move: float) -> Array:
            return _log_difference(np.array([low - move]), np.array([high - move]))

        ratio = self._ratio(log_mass, np.array([max((abs(e) for e in ends), default=0.0)]))
        return float(ratio[0][0]), float(ratio[1][0]), float(ratio[2][0])

    def _ratio(self, log_mass: Callable[[float], Array], size: Array) -> tuple[Array, Array, Array]:
        """Mass and level, (log p, level, doubt), from the log masses of N moved by any amount."""
        base = log_mass(0.0)
        log_p, level, doubt = base, np.zeros_like(base), np.zeros_like(base)
        for sign, q, move in self._sides():
            moved = log_mass(move)
            with np.errstate(invalid="ignore"):
                t = np.where(np.isneginf(moved) & np.isneginf(base), 0.0, moved - base)
            part, passed = log_ratio_and_slope(t, q)
            if sign > 0.0:
                log_p = base + part
                if q == 1.0:
                    log_p = moved
            level = level + sign * part
            doubt = doubt + passed * (
                2.0 * _FUNCTIONS + 2.0 * FEW_ROUNDINGS * (size + abs(move)) ** 2
            )
        return log_p, level, doubt + FEW_ROUNDINGS * np.abs(level)


def replace_one_threshold(epsilon: Array, q: float, z: float) -> Array:
    """The x at which the loss of the replace-one pair is epsilon.

    q e^-c y^2 + (1-q)(1-alpha) y - alpha q e^-c = 0 with y = e^(x/z^2), c = 1/(2 z^2), divided by
    e^(epsilon/2) y; then x = z^2 (epsilon/2 + asinh h), with log h kept apart, as h may overflow.
    """
    size = np.abs(epsilon)
    odds = math.log1p(-q) - math.log(q) if q < 1.0 else -math.inf
    with np.errstate(divide="ignore"):
        log_half = odds + 0.5 / z**2 + size / 2.0 + np.log(-np.expm1(-size)) - math.log(2.0)
    # beyond e^20, asinh h = log(2 h) to within 1 / 4 h^2 = 1e-18
    near = np.arcsinh(np.exp(np.minimum(log_half, 20.0)))
    far = np.where(log_half > 20.0, log_half + math.log(2.0), near)
    return np.asarray(np.sign(epsilon) * z**2 * (size / 2.0 + far))


def sampled_gaussian_histogram(
    q: float, z: float, way: Direction | None, ends: Array
) -> LossHistogram:
    """The loss of one step between ends: by direction for add-remove, None for replace-one."""
    move = 1.0 / z

    def back(epsilon: Array) -> Array:
        return z * inverse_log_ratio(epsilon, q) + 0.5 * move

    if way is Direction.REMOVE:
        return GaussianMixturePair(left=move, left_rate=q, right=0.0, right_rate=0.0).histogram(
            ends, back
        )
    if way is Direction.ADD:
        line = GaussianMixturePair(left=0.0, left_rate=0.0, right=-move, right_rate=q)
        return line.histogram(ends, lambda e: -back(-e))
    line = GaussianMixturePair(left=move, left_rate=q, right=-move, right_rate=q)
    return line.histogram(ends, lambda e: replace_one_threshold(e, q, z) / z)


def add_atoms(
    histogram: LossHistogram, ends: Array, atoms: list[tuple[float, float]]
) -> LossHistogram:
    """Put atoms (loss, P-probability) into the intervals of a histogram that they fall into."""
    p, level, doubt = histogram.p.copy(), histogram.level.copy(), histogram.doubt.copy()
    for loss, mass in atoms:
        if mass <= 0.0:
            continue
        j = int(np.searchsorted(ends, loss, side="left")) - 1
        if j < 0:
            histogram = replace(histogram, below=histogram.below + mass)
        elif j >= len(p):
            both = _merge_outcomes(histogram.above, histogram.above_level, mass, loss)
            doubts = histogram.above_doubt + FEW_ROUNDINGS * (4.0 + abs(loss))
            histogram = replace(histogram, above=both[0], above_level=both[1], above_doubt=doubts)
        else:
            p[j], level[j] = _merge_outcomes(float(p[j]), float(level[j]), mass, loss)
            doubt[j] += FEW_ROUNDINGS * (4.0 + abs(loss))  # four logarithms, and the loss
    return replace(histogram, p=p, level=level, doubt=doubt)


def _merge_outcomes(p: float, level: float, mass: float, loss: float) -> tuple[float, float]:
    """Merge two outcomes into one: its p and log(p/m)."""
    if p == 0.0:
        return mass, loss
    other = float(np.logaddexp(math.log(p) - level, math.log(mass) - loss))
    return p + mass, math.log(p + mass) - other


def empty_histogram(ends: Array) -> LossHistogram:
    """A histogram without mass, to put atoms into."""
    zero = np.zeros(len(ends) - 1)
    return LossHistogram(
        p=zero,
        level=0.5 * (ends[:-1] + ends[1:]),
        doubt=zero,
        relative=1e-14,  # the masses of atoms: an exponential, a quotient and a sum
        below=0.0,
        above=0.0,
        above_level=float(ends[-1]),
        above_doubt=0.0,
        edge=0.0,
    )


def laplace_histogram(ends: Array, q: float, shift: float, sign: int) -> LossHistogram:
    """One Laplace release of scale 1 moved by `shift`, at rate q; sign +1 is remove, -1 is add.

    With t(x) = |x| - |x - shift| the loss is log(1 - q + q e^t) under the mixture, or its negative
    under the law without the unit. Outside [0, shift] it is constant: two atoms.
    """
    t = inverse_log_ratio(sign * ends, q)
    x = np.clip(0.5 * (t + shift), 0.0, shift)
    if sign < 0:
        x = x[::-1]
    width = np.diff(x)
    live = width > 0.0
    log_p, level = np.full(len(width), -np.inf), np.zeros(len(width))
    a, w = x[:-1][live], width[live]
    with np.errstate(divide="ignore"):
        base = -a + np.log(-np.expm1(-w)) - math.log(2.0)
        moved = a - shift + np.log(np.expm1(w)) - math.log(2.0)
    ratio, passed = log_ratio_and_slope(moved - base, q)
    log_p[live], level[live] = (base + ratio if sign > 0 else base), sign * ratio
    doubt = np.zeros(len(width))
    doubt[live] = passed * (_FUNCTIONS + 2.0 * FEW_ROUNDINGS * shift) + FEW_ROUNDINGS * np.abs(
        ratio
    )
    if sign < 0:
        log_p, level, doubt = log_p[::-1], level[::-1], doubt[::-1]
        x = x[::-1]
    at, err = log_ratio_and_slope(2.0 * x - shift, q)
    inside = (x > 0.0) & (x < shift)
    gap = np.abs(sign * at - ends) + FEW_ROUNDINGS * (np.abs(at) + err * shift)
    edge = float(np.max(gap[inside])) if np.any(inside) else 0.0
    histogram = replace(
        empty_histogram(ends),
        p=np.exp(log_p),
        level=level,
        doubt=doubt,
        relative=_FUNCTIONS + 2.0 * FEW_ROUNDINGS * shift,
        edge=edge + 4e-16 * shift,  # x and 2 x - shift are rounded, by 2^-53 of the shift each
    )
    histogram = _add_tails(histogram, ends, q, shift, sign)
    bottom, top = (float(log_ratio_and_slope(np.array(s * shift), q)[0]) for s in (-1.0, 1.0))
    low_mass, high_mass = 0.5, 0.5 * math.exp(-shift)
    if sign > 0:
        low_mass, high_mass = low_mass * math.exp(bottom), high_mass * math.exp(top)
        return add_atoms(histogram, ends, [(bottom, low_mass), (top, high_mass)])
    return add_atoms(histogram, ends, [(-top, high_mass), (-bottom, low_mass)])


def _add_tails(
    histogram: LossHistogram, ends: Array, q: float, shift: float, sign: int
) -> LossHistogram:
    """The continuous part of a Laplace release beyond the first and the last end."""
    first, last = (
        float(np.clip(0.5 * (v + shift), 0.0, shift))
        for v in inverse_log_ratio(sign * ends[[0, -1]], q)
    )

    def mass(low: float, high: float) -> tuple[float, float]:
        if high <= low:
            return 0.0, 0.0
        without = 0.5 * math.exp(-low) * -math.expm1(low - high)
        moved = 0.5 * math.exp(high - shift) * -math.expm1(low - high)
        mixed = (1.0 - q) * without + q * moved
        return (mixed, without) if sign > 0 else (without, mixed)

    under = mass(0.0, first) if sign > 0 else mass(first, shift)
    over = mass(last, shift) if sign > 0 else mass(0.0, last)
    level = math.log(over[0] / over[1]) if over[1] > 0.0 else float(ends[-1])
    return replace(
        histogram,
        below=under[0],
        above=over[0],
        above_level=level,
        above_doubt=_FUNCTIONS + 2.0 * FEW_ROUNDINGS,
    )


def symmetric_histogram(
    positive: Callable[[Array], LossHistogram], ends: Array, atom: float
) -> LossHistogram:
    """The symmetric law whose losses above 0 are those of another: P-mass of -L is Q-mass of L.

    `atom` is what the two halves leave of the total probability; it sits at 0.
    """
    grid = np.union1d(np.abs(ends), [0.0])
    half = positive(grid)
    m = half.p * np.exp(-half.level)
    above_m = half.above * math.exp(-half.above_level)
    p = np.concatenate([[above_m], m[::-1], [atom], half.p, [half.above]])
    q = np.concatenate([[half.above], half.p[::-1], [atom], m, [above_m]])
    edges = np.concatenate([-grid[::-1], grid])  # the atom between the two zeros
    at = np.searchsorted(edges, ends, side="left")
    at = np.where(ends > 0.0, np.searchsorted(edges, ends, side="right") - 1, at)
    # the interval k of `p` lies between edges[k - 1] and edges[k]
    starts = at + 1
    sums_p = np.add.reduceat(p, starts[:-1]) if len(starts) > 1 else np.zeros(0)
    sums_q = np.add.reduceat(q, starts[:-1]) if len(starts) > 1 else np.zeros(0)
    last = slice(int(starts[-2]), int(starts[-1]))
    sums_p[-1], sums_q[-1] = np.sum(p[last]), np.sum(q[last])
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(sums_p > 0.0, np.log(sums_p) - np.log(sums_q), 0.0)
    over_p, over_q = float(np.sum(p[starts[-1] :])), float(np.sum(q[starts[-1] :]))
    worst = float(np.max(half.doubt, initial=0.0))
    return LossHistogram(
        p=sums_p,
        level=level,
        doubt=np.full(len(sums_p), worst + half.relative + FEW_ROUNDINGS),
        relative=2.0 * half.relative + worst + FEW_ROUNDINGS,
        below=float(np.sum(p[: starts[0]])),
        above=over_p,
        above_level=math.log(over_p / over_q) if over_q > 0.0 else float(ends[-1]),
        above_doubt=half.above_doubt + half.relative + worst,
        edge=half.edge,
    )
