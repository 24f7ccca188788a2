"""Which accountant answers: closed forms where they are exact, the contour, the lattice, the Renyi
curve.

All of them err on the private side, so the least of their answers may be returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from privet.loss import contour, lattice
from privet.loss.base import Direction, Part, PrivacyLoss, compose
from privet.loss.gaussian import Gaussian, _nudge, _root, gaussian_delta, gaussian_epsilon


def _directions(parts: Sequence[Part]) -> tuple[Direction, ...]:
    if all(p.symmetric for p in parts):
        return (Direction.REMOVE,)
    return (Direction.REMOVE, Direction.ADD)


def _simplest(loss: PrivacyLoss) -> tuple[Part, ...]:
    """The parts, with steps at rate 1 taken for the plain Gaussian releases that they are."""
    parts = [simple for part in loss.parts for simple in part.simplest()]
    return compose(parts, adjacency=loss.neighbours).parts


def _only(parts: Sequence[Part]) -> Part | None:
    return parts[0] if len(parts) == 1 else None


def epsilon(loss: PrivacyLoss, delta: float) -> float:
    """The smallest epsilon known to hold at `delta`; 0 <= epsilon <= inf."""
    parts = _simplest(loss)
    failure = _failure(parts)
    if failure > 0.0:
        if delta <= failure:
            return math.inf
        delta = (delta - failure) / (1.0 - failure)
    if not parts:
        return 0.0
    only = _only(parts)
    if isinstance(only, Gaussian):
        return gaussian_epsilon(only.mu, delta) if delta > 0 else only.supremum(Direction.REMOVE)
    if delta == 0.0:
        return max(_ceiling(parts, d) for d in _directions(parts))
    worst, how = 0.0, None
    for direction in _directions(parts):
        ceiling = _ceiling(parts, direction)
        if ceiling <= worst or (how and contour.holds(parts, direction, how, worst, delta)):
            continue
        value, how = _one_way(parts, direction, delta, ceiling)
        worst = ceiling if math.isnan(value) else max(worst, value)
    return worst


def _ceiling(parts: Sequence[Part], direction: Direction) -> float:
    return math.fsum(p.supremum(direction) for p in parts)


def _one_way(
    parts: Sequence[Part], direction: Direction, delta: float, ceiling: float
) -> tuple[float, contour.Plan | None]:
    """epsilon in one direction, and the plan of the contour if that found it."""
    only = _only(parts)
    if only is not None and only.releases == 1:
        single = _single(only, direction, delta, ceiling)
        if single is not None:
            return single, None
    if _total_variation(parts, direction) <= delta:
        return 0.0, None
    value, how = contour.epsilon(parts, direction, delta, rounds=2)
    if how is None:
        tight = False
        if lattice.applies(parts, direction):
            value, tight = lattice.epsilon(parts, direction, delta, min(value, ceiling))
        if not tight:
            refined, how = contour.epsilon(parts, direction, delta, rounds=6)
            value = min(value, refined)
    return min(value, ceiling), how


def _total_variation(parts: Sequence[Part], direction: Direction) -> float:
    """A bound of delta at epsilon 0: the sum of those of the single releases (1 if unknown)."""
    if sum(p.distinct for p in parts) >= 64:
        return 1.0
    total = 0.0
    for part in parts:
        for single, count in part.singles():
            values = single.profile(np.zeros(1), direction)
            if values is None:
                return 1.0
            total += count * float(values[0])
    return total * (1.0 + 1e-12)


def _single(part: Part, direction: Direction, delta: float, ceiling: float) -> float | None:
    def excess(e: float) -> float:
        values = part.profile(np.array([e]), direction)
        assert values is not None
        return float(values[0]) * (1.0 + 1e-13) - delta

    if part.profile(np.array([0.0]), direction) is None:
        return None
    if excess(0.0) <= 0.0:
        return 0.0
    high = ceiling
    if not math.isfinite(high):
        high = 1.0
        while excess(high) > 0.0:
            high *= 2.0
            if high > 1e18:
                return math.inf
    if excess(high) > 0.0:
        return high
    root = _root(excess, 0.0, high, precision=1e-11)
    return min(high, _nudge(max(root, 1e-300), 1.0 + 1e-15, _at_most(excess)))


def _at_most(excess: Callable[[float], float]) -> Callable[[float], bool]:
    return lambda e: excess(e) <= 0.0


def delta(loss: PrivacyLoss, epsilon: float) -> float:
    """The smallest delta known to hold at `epsilon`."""
    parts = _simplest(loss)
    failure = _failure(parts)
    finite = 0.0
    only = _only(parts)
    if isinstance(only, Gaussian):
        finite = gaussian_delta(only.mu, epsilon)
    elif parts:
        for direction in _directions(parts):
            if _ceiling(parts, direction) > epsilon:
                value = _delta_one_way(parts, direction, epsilon)
                finite = 1.0 if math.isnan(value) else max(finite, value)
    if finite == 0.0 and any(_ceiling(parts, d) > epsilon for d in _directions(parts)):
        finite = math.nextafter(0.0, 1.0)  # it underflowed; 0 would read as pure privacy
    return min(1.0, failure + (1.0 - failure) * finite)


def _delta_one_way(parts: Sequence[Part], direction: Direction, epsilon: float) -> float:
    only = _only(parts)
    if only is not None and only.releases == 1:
        values = only.profile(np.array([epsilon]), direction)
        if values is not None:
            return float(values[0]) * (1.0 + 1e-13)
    value, tight = contour.delta(parts, direction, epsilon)
    if not tight and lattice.applies(parts, direction):
        value = lattice.delta(parts, direction, epsilon, value)
    return value


def _failure(parts: Sequence[Part]) -> float:
    survive = math.fsum(math.log1p(-p.failure) for p in parts)
    return -math.expm1(survive)
