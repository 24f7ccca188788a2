"""Which accountant answers: closed forms where they are exact, the contour, the lattice, the Renyi
curve.

All of them err on the private side, so the least of their answers may be returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from privet.accounting import contour_integral, fft_accountant
from privet.accounting.contour_integral import EpsilonBounds
from privet.accounting.gaussian import (
    Gaussian,
    _log_error,
    _nudge,
    _root,
    epsilon_of,
    gaussian_delta,
    log_delta,
)
from privet.accounting.privacy_loss import (
    FEW_ROUNDINGS,
    MANY_ROUNDINGS,
    TINY,
    Direction,
    LossPart,
    PrivacyLoss,
    compose,
)
from privet.accounting.renyi_curve import RenyiCurve

FEW_RELEASES = 64
"""So many releases go to the FFT first: the transform of few losses decays slowly, so the
contour needs many points, and their sum fits on a small grid."""
_CLOSE = 4.0
"""Tolerances between the two bounds of epsilon up to which the other method is not asked: 0.1% of
epsilon. The contour aims at three."""
FEW_DISTINCT = 64
"""So many different releases are remembered with their epsilon: no arrays of long schedules."""
PROFILE_ERROR = 1e-11
"""Bound of the relative error of the profile of one release: a hundred times the 1e-13 of erfc.

Measured against 60 digits, for sampled Gaussian steps and deltas down to 1e-290: 3e-13."""
_BELOW = 1e-9
"""How far below a closed form, relatively, the exact answer is looked for: mostly it is closer."""
_LARGEST_EPSILON = 1e18
"""An epsilon that is looked for; what is larger counts as infinite."""


def _directions(parts: Sequence[LossPart]) -> tuple[Direction, ...]:
    if all(p.symmetric for p in parts):
        return (Direction.REMOVE,)
    return (Direction.REMOVE, Direction.ADD)


def _simplify(loss: PrivacyLoss) -> tuple[LossPart, ...]:
    """Simplify the parts: steps at rate 1 become the plain Gaussian releases that they are."""
    parts = [simple for part in loss.parts for simple in part.simplify()]
    return compose(parts, adjacency=loss.adjacency).parts


def _single_part(parts: Sequence[LossPart]) -> LossPart | None:
    return parts[0] if len(parts) == 1 else None


def epsilon(loss: PrivacyLoss, delta: float) -> float:
    """The smallest epsilon known to hold at `delta`; 0 <= epsilon <= inf."""
    return _bounds(_simplify(loss), delta)[1]


def epsilon_bounds(loss: PrivacyLoss, delta: float) -> tuple[float, float]:
    """An interval that contains the exact epsilon at `delta`."""
    parts = _simplify(loss)
    low, high = _bounds(parts, delta)
    simpler = tuple(p.lower_bound() for p in parts)
    if simpler != parts:  # the interval above is that of parts that dominate these
        low = _bounds(compose(simpler, adjacency=loss.adjacency).parts, delta)[0]
    return min(low, high), high


def _bounds(parts: tuple[LossPart, ...], delta: float) -> tuple[float, float]:
    """Bounds of epsilon, one below the exact one and one that holds; short losses are solved once.

    A ledger, a guarantee and a search ask for the same loss again and again.
    """
    short = sum(p.distinct for p in parts) <= FEW_DISTINCT
    return (_solve_cached if short else _solve)(parts, delta)


def _solve(parts: tuple[LossPart, ...], delta: float) -> tuple[float, float]:
    failure = _failure(parts)
    if failure > 0.0:
        if delta <= failure:
            return math.inf, math.inf
        delta = (delta - failure) / (1.0 - failure)
    if not parts:
        return 0.0, 0.0
    only = _single_part(parts)
    if delta == 0.0:
        ceiling = max(_ceiling(parts, d) for d in _directions(parts))
        return ceiling * (1.0 - MANY_ROUNDINGS), ceiling
    if isinstance(only, Gaussian):
        value, mu = epsilon_of(only.mu, delta), only.mu
        return _surely_below(
            value, lambda e: log_delta(mu, e) - _log_error(mu, e) > math.log(delta)
        ), value
    low, worst, how = 0.0, 0.0, None
    for direction in _directions(parts):
        ceiling = _ceiling(parts, direction)
        if ceiling <= worst or (
            how and contour_integral.holds(parts, direction, how, worst, delta)
        ):
            continue
        bounds = _one_way(parts, direction, delta, ceiling)
        how = bounds.plan
        if math.isnan(bounds.high):
            return low, ceiling
        low, worst = max(low, bounds.low), max(worst, bounds.high)
    return low, worst


_solve_cached = lru_cache(maxsize=512)(_solve)  # of at most 64 distinct steps: 1 MB in all


def _ceiling(parts: Sequence[LossPart], direction: Direction) -> float:
    return math.fsum(p.supremum(direction) for p in parts)


def _one_way(
    parts: Sequence[LossPart], direction: Direction, delta: float, ceiling: float
) -> EpsilonBounds:
    """epsilon in one direction, by the first method that is tight, or the best of all."""
    only = _single_part(parts)
    if only is not None and only.releases == 1:
        single = _single(only, direction, delta, ceiling)
        if single is not None:
            low = _surely_below(single, lambda e: _excess(only, direction, e, -1.0) > delta)
            return EpsilonBounds(high=single, low=low, plan=None, spread=0.0)
    if _total_variation(parts, direction) <= delta:
        return EpsilonBounds(high=0.0, low=0.0, plan=None, spread=0.0)
    few = sum(p.releases for p in parts) <= FEW_RELEASES
    bounds = EpsilonBounds(high=ceiling, low=0.0, plan=None, spread=math.inf)
    for method in (_on_lattice, _by_contour) if few else (_by_contour, _on_lattice):
        bounds = _combine(bounds, method(parts, direction, delta, bounds))
        if math.isfinite(bounds.high) and bounds.width <= _CLOSE * contour_integral.tolerance_of(
            bounds.high, bounds.spread
        ):
            break
    return bounds


def _by_contour(
    parts: Sequence[LossPart], direction: Direction, delta: float, so_far: EpsilonBounds
) -> EpsilonBounds:
    return contour_integral.epsilon(parts, direction, delta, spread=so_far.spread, rounds=3)


def _on_lattice(
    parts: Sequence[LossPart], direction: Direction, delta: float, so_far: EpsilonBounds
) -> EpsilonBounds:
    releases = fft_accountant.releases_of(parts, direction)
    if releases is None:
        return so_far
    renyi = RenyiCurve(parts=parts, direction=direction, cut=contour_integral.cut_for(parts, delta))
    guess = min(so_far.high, renyi.epsilon(math.log(delta))[0])
    low, high, spread = fft_accountant.epsilon(releases, direction, delta, guess)
    return EpsilonBounds(high=high, low=low, plan=None, spread=spread)


def _combine(one: EpsilonBounds, other: EpsilonBounds) -> EpsilonBounds:
    """Take the tighter bound on each side of what two methods found."""
    best = one if one.high <= other.high else other
    spread = min(one.spread, other.spread)
    return EpsilonBounds(high=best.high, low=max(one.low, other.low), plan=best.plan, spread=spread)


def _total_variation(parts: Sequence[LossPart], direction: Direction) -> float:
    """A bound of delta at epsilon 0: the sum of those of the single releases (1 if unknown)."""
    if sum(p.distinct for p in parts) >= FEW_DISTINCT:
        return 1.0
    total = 0.0
    for part in parts:
        for single, count in part.elementary_releases():
            values = single.profile(np.zeros(1), direction)
            if values is None:
                return 1.0
            total += count * float(values[0])
    return total * (1.0 + MANY_ROUNDINGS)


def _surely_below(epsilon: float, exceeded: Callable[[float], bool]) -> float:
    """A number a little below `epsilon` at which delta is certain to be exceeded; 0 if none."""
    room = _BELOW
    while 0.0 < epsilon < math.inf and room < 1.0:
        low = epsilon * (1.0 - room)
        if exceeded(low):
            return low
        room *= 8.0
    return epsilon if math.isinf(epsilon) else 0.0


def _excess(part: LossPart, direction: Direction, epsilon: float, sign: float) -> float:
    """delta of one release at an epsilon, from above (sign +1) or from below (-1)."""
    values = part.profile(np.array([epsilon]), direction)
    assert values is not None
    return float(values[0]) * (1.0 + sign * PROFILE_ERROR)


def _single(part: LossPart, direction: Direction, delta: float, ceiling: float) -> float | None:
    def excess(e: float) -> float:
        return _excess(part, direction, e, 1.0) - delta

    if part.profile(np.array([0.0]), direction) is None:
        return None
    if excess(0.0) <= 0.0:
        return 0.0
    high = ceiling
    if not math.isfinite(high):
        high = 1.0
        while excess(high) > 0.0:
            high *= 2.0
            if high > _LARGEST_EPSILON:
                return math.inf
    if excess(high) > 0.0:
        return high
    root = _root(excess, 0.0, high, precision=PROFILE_ERROR)
    return min(high, _nudge(max(root, TINY), 1.0 + FEW_ROUNDINGS, _is_at_most(excess)))


def _is_at_most(excess: Callable[[float], float]) -> Callable[[float], bool]:
    return lambda e: excess(e) <= 0.0


def delta(loss: PrivacyLoss, epsilon: float) -> float:
    """The smallest delta known to hold at `epsilon`."""
    return _delta_bounds(_simplify(loss), epsilon)[1]


def delta_bounds(loss: PrivacyLoss, epsilon: float) -> tuple[float, float]:
    """An interval that contains the exact delta at `epsilon`."""
    parts = _simplify(loss)
    low, high = _delta_bounds(parts, epsilon)
    simpler = tuple(p.lower_bound() for p in parts)
    if simpler != parts:
        low = _delta_bounds(compose(simpler, adjacency=loss.adjacency).parts, epsilon)[0]
    return min(low, high), high


def _delta_bounds(parts: tuple[LossPart, ...], epsilon: float) -> tuple[float, float]:
    failure = _failure(parts)
    low, finite = 0.0, 0.0
    only = _single_part(parts)
    if isinstance(only, Gaussian):
        finite = gaussian_delta(only.mu, epsilon)
        low = finite * (1.0 - max(_BELOW, 3.0 * _log_error(only.mu, epsilon)))
    elif parts:
        for direction in _directions(parts):
            if _ceiling(parts, direction) > epsilon:
                under, over = _delta_one_way(parts, direction, epsilon)
                low, finite = max(low, under), 1.0 if math.isnan(over) else max(finite, over)
    if finite == 0.0 and any(_ceiling(parts, d) > epsilon for d in _directions(parts)):
        finite = math.nextafter(0.0, 1.0)  # it underflowed; 0 would read as pure privacy
    return failure + (1.0 - failure) * low, min(1.0, failure + (1.0 - failure) * finite)


def _delta_one_way(
    parts: Sequence[LossPart], direction: Direction, epsilon: float
) -> tuple[float, float]:
    only = _single_part(parts)
    if only is not None and only.releases == 1:
        values = only.profile(np.array([epsilon]), direction)
        if values is not None:
            value = float(values[0])
            return value * (1.0 - PROFILE_ERROR), value * (1.0 + PROFILE_ERROR)
    low, high = 0.0, 1.0
    few = sum(p.releases for p in parts) <= FEW_RELEASES
    for method in (
        (_delta_on_lattice, contour_integral.delta)
        if few
        else (contour_integral.delta, _delta_on_lattice)
    ):
        under, over = method(parts, direction, epsilon)
        low, high = max(low, under), min(high, over)
        if high - low <= 3e-3 * high:  # each method aims at 2e-3 or 3e-3 by itself
            break
    return low, high


def _delta_on_lattice(
    parts: Sequence[LossPart], direction: Direction, epsilon: float
) -> tuple[float, float]:
    releases = fft_accountant.releases_of(parts, direction)
    if releases is None:
        return 0.0, 1.0
    guess, _ = RenyiCurve(parts=parts, direction=direction).delta(epsilon)
    return fft_accountant.delta(releases, direction, epsilon, math.exp(guess))


def _failure(parts: Sequence[LossPart]) -> float:
    survive = math.fsum(math.log1p(-p.failure) for p in parts)
    return -math.expm1(survive)
