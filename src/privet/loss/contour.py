"""delta(epsilon) of a composition as one integral in the complex plane, always from above.

With K(z) = sum of log E[e^(z L_t)] over the parts and any order lambda > 0,

    delta(epsilon) = 1/(2 pi) * integral of e^(K(z) - z epsilon) / (z (z + 1)) dw,  z = lambda + iw,

because 1/(z (z+1)) is the Laplace transform of (1 - e^(-y))_+. Four approximations, each of which
raises the result (proofs in docs/theory/contour.md):

1. the trapezoid rule of period P = 2 pi / spacing gives sum_m e^(lambda m P) delta(epsilon + m P);
2. one extra Gaussian release of ratio mu0 is composed in, which makes the integrand decay;
3. what lies beyond the last frequency is bounded by that Gaussian and added;
4. the error bounds of K, reported by each part, are added in absolute value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.loss.base import Array, Direction, Part, Quadrature
from privet.loss.gaussian import _nudge, _root

_ALIAS = math.log(1e6)
_TRUNCATION = math.log(3e5)
_MOST_POINTS = 12_000
_CUT = 1e-4
"""Share of delta that the cut-off of rare losses may take."""


def tolerance_of(epsilon: float) -> float:
    """How much the smoothing may add to epsilon."""
    return 2.5e-4 * epsilon if epsilon > 0.02 else 1e-4


@dataclass(frozen=True, kw_only=True)
class Renyi:
    """The Renyi curve of a list of parts, in one direction."""

    parts: Sequence[Part]
    direction: Direction
    cut: float = 0.0

    def log_mgf(self, orders: Array) -> Array:
        """K at real orders."""
        total = np.zeros_like(orders)
        for part in self.parts:
            total = total + part.log_mgf(orders, self.direction, self.cut)
        return total

    def on(self, line: Quadrature) -> tuple[Array, Array] | None:
        """K on a vertical line and a bound of its error; None where a part knows real orders only.
        K on a vertical line and a bound of its error; None where a part knows real orders only."""
        total, errors = np.zeros(line.count, dtype=complex), np.zeros(line.count)
        for part in self.parts:
            answer = part.log_mgf_on(line, self.direction, self.cut)
            if answer is None:
                return None
            total, errors = total + answer[0], errors + answer[1]
        return total, errors

    @property
    def tail(self) -> float:
        """The probability that the cut-off leaves out, to be added to delta."""
        return math.fsum(p.tail(self.direction, self.cut) for p in self.parts)

    def start(self, log_delta: float) -> float:
        """The order that would be best if the loss were Gaussian with the same spread."""
        tiny = 1e-3
        spread = 2.0 * float(self.log_mgf(np.array([tiny]))[0]) / (tiny * (1.0 + tiny))
        return min(max(math.sqrt(-2.0 * log_delta / max(spread, 1e-12)), 1e-4), 1e5)

    def epsilon(self, log_delta: float) -> tuple[float, float]:
        """The best epsilon that the curve gives, and the order that gives it.

        delta <= e^(K(t) - t epsilon) t^t / (t+1)^(t+1) (Canonne, Kamath and Steinke 2020,
        proposition 12).
        """

        def bound(t: Array) -> Array:
            return np.asarray(
                (self.log_mgf(t) - log_delta + t * np.log(t) - (t + 1) * np.log1p(t)) / t
            )

        return _minimise(bound, self.start(log_delta))

    def delta(self, epsilon: float) -> tuple[float, float]:
        """The best log delta that the curve gives at `epsilon`, and the order that gives it."""

        def bound(t: Array) -> Array:
            return np.asarray(self.log_mgf(t) - t * epsilon + t * np.log(t) - (t + 1) * np.log1p(t))

        value, order = _minimise(bound, self.start(-1.0 - epsilon))
        return min(0.0, value), order


def _minimise(f: Callable[[Array], Array], start: float) -> tuple[float, float]:
    """The least value found of a function of the order that falls and then rises, and where it is.

    Any order gives a valid bound, so that a value near the least is as sound as the least.
    """
    centre, width = math.log(start), math.log(6.0)
    least = math.inf
    for _ in range(40):
        logs = np.linspace(centre - width, centre + width, 9)
        logs = logs[(logs > -12.0) & (logs < 16.0)]
        values = np.nan_to_num(f(np.exp(logs)), nan=math.inf)
        i = int(np.argmin(values))
        if values[i] < least:
            least, centre = float(values[i]), float(logs[i])
        if 0 < i < len(logs) - 1 or not math.isfinite(values[i]) or width < 0.1:
            width /= 5.0
        if width < 0.04:
            break
    return least, math.exp(centre)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """An upper bound of epsilon -> delta, evaluated from stored values of K on one vertical line.
    An upper bound of epsilon -> delta, evaluated from stored values of K on one vertical line."""

    line: Quadrature
    scale: float
    """K at the order itself, smoothing included."""
    weights: Array
    """Complex coefficients of e^(-i w epsilon), relative to e^(scale - order * epsilon)."""
    slack: float
    """Truncation and rounding, on the same scale."""

    turning: float
    """Rounding of the phases w epsilon, for each unit of epsilon."""

    def log_delta(self, epsilon: float) -> float:
        """log of the bound; infinite where nothing can be said."""
        turn = np.exp(-1j * self.line.frequencies * epsilon)
        total = float(np.sum((self.weights * turn).real)) + self.slack + self.turning * epsilon
        if not math.isfinite(total + self.scale):
            return math.inf
        if total <= 0.0:  # only without slack, which is for judging tightness
            return -math.inf
        return self.scale - self.line.order * epsilon + math.log(total)


def build_curve(log_mgf: Array, errors: Array, line: Quadrature, smoothing: float) -> Curve:
    """Assemble the bound from K on the line; `smoothing` is mu0^2.

    With relative errors x_i of the factors, |prod(1 + x_i) - 1| <= e^(sum |x_i|) - 1. No term is in
    doubt by more than itself and |e^K(z)| <= e^K(order); a value that is not a number counts so.
    """
    z, w, order = line.points, line.frequencies, line.order
    extra = 0.5 * smoothing * z * (z + 1.0)
    scale = float(log_mgf[0].real + extra[0].real)
    known = np.isfinite(log_mgf) & np.isfinite(errors)
    relative = np.exp(np.where(known, log_mgf + extra - scale, -np.inf))
    weights = (line.spacing / math.pi) * relative / (z * (z + 1.0))
    weights[0] *= 0.5
    size = np.abs(weights)
    most = (line.spacing / math.pi) / np.abs(z * (z + 1.0)) * np.exp(extra.real - extra[0].real)
    doubt = size * np.expm1(np.minimum(np.where(known, errors, 700.0) + 1e-14, 700.0))
    rounding = float(np.sum(np.where(known, np.minimum(doubt, size + most), most)))
    last = float(w[-1])
    # sum over k > count of |weights| <= (1/pi) int_last^inf e^(-mu0^2 w^2/2) / w^2 dw
    tail = math.exp(-0.5 * smoothing * last * last) / (math.pi * smoothing * last**3)
    return Curve(
        line=line,
        scale=scale,
        weights=weights,
        slack=tail + rounding + 1e-15 / order,
        turning=4.5e-16 * float(np.sum(w * size)),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where to integrate: chosen for tightness; any choice is sound."""

    cut: float
    order: float
    period: float
    smoothing: float
    points: int

    @property
    def line(self) -> Quadrature:
        return Quadrature(order=self.order, spacing=2.0 * math.pi / self.period, count=self.points)


def plan(renyi: Renyi, *, order: float, epsilon: float, log_delta: float, tolerance: float) -> Plan:
    """Order, period, smoothing and number of points for a result near (epsilon, log_delta).

    The copies of delta shifted by the period to the left and right have to be small: e^(-order P)
    and, by the Renyi curve at a larger order t, e^(K(t) - t (epsilon + P) + order P). Of the orders
    tried the one that needs the fewest points is taken.
    """
    orders = order * np.geomspace(0.15, 8.0, 18)
    k = renyi.log_mgf(orders)
    smoothing = 2.0 * tolerance / (order + 1.0)
    best: Plan | None = None
    for i in range(12):
        lam = float(orders[i])
        left = (_ALIAS - log_delta) / lam
        above = orders[i + 1 :]
        right = (k[i + 1 :] - above * epsilon - log_delta + _ALIAS) / (above - lam)
        period = max(left, float(np.min(right)))
        if not math.isfinite(period + float(k[i])):
            continue
        level = max(float(k[i]) - lam * epsilon - log_delta, 0.0) + _TRUNCATION
        last = math.sqrt(2.0 * level / smoothing)
        for _ in range(3):
            rest = level - math.log(math.pi * smoothing * last**3)
            last = math.sqrt(2.0 * max(rest, 1.0) / smoothing)
        points = max(32, math.ceil(last * period / (2.0 * math.pi)) + 1)
        if level < 30.0 and (best is None or points < best.points):
            best = Plan(cut=renyi.cut, order=lam, period=period, smoothing=smoothing, points=points)
    return best or Plan(
        cut=renyi.cut, order=order, period=1.0, smoothing=smoothing, points=_MOST_POINTS + 1
    )


def epsilon(
    parts: Sequence[Part], direction: Direction, delta: float, *, rounds: int
) -> tuple[float, Plan | None]:
    """An epsilon that is never too small, and the plan behind it; None where it may not be tight.

    It is taken to be tight if it does not move by more than a few parts in 10^4 when the smoothing
    is halved and the slack left out, and lies where the plan expected it (the shifted copies are
    small only there). Otherwise the plan is refined, `rounds` times at most.
    """
    releases = sum(p.releases for p in parts)
    renyi = Renyi(parts=parts, direction=direction, cut=_CUT * delta / releases)
    target = math.log(delta - renyi.tail)
    best, order = renyi.epsilon(target)
    best = max(best, 0.0)
    guess, tolerance = max(best - 3.0 / order, 0.0), tolerance_of(best)
    for _ in range(rounds):
        p = plan(renyi, order=order, epsilon=guess, log_delta=target, tolerance=tolerance)
        answer = renyi.on(p.line) if p.points <= _MOST_POINTS else None
        if answer is None:
            return best, None
        curve = build_curve(*answer, p.line, p.smoothing)
        value = _solve(curve, target, best)
        best = min(best, value)
        sharper = replace(build_curve(*answer, p.line, 0.5 * p.smoothing), slack=0.0)
        least = max(value - 1.5 * tolerance_of(value), 0.0)
        settled = least == 0.0 or sharper.log_delta(least) >= target
        if settled and (guess - value) * order <= 3.0:
            return best, p
        excess = (value - _solve(sharper, target, max(value, 1e-12))) / (1.5 * tolerance_of(value))
        guess, tolerance = best, tolerance / max(1.0, 1.5 * excess)
        order = renyi.delta(best)[1]  # the answer was far from the Renyi bound: centre on it
    return best, None


def holds(
    parts: Sequence[Part], direction: Direction, p: Plan, epsilon: float, delta: float
) -> bool:
    """Whether (epsilon, delta) is certain in this direction too, by the plan of the other one."""
    renyi = Renyi(parts=parts, direction=direction, cut=p.cut)
    answer = renyi.on(p.line)
    if answer is None:
        return False
    curve = build_curve(*answer, p.line, p.smoothing)
    return curve.log_delta(epsilon) <= math.log(delta - renyi.tail)


def _solve(curve: Curve, target: float, high: float) -> float:
    """The least epsilon in [0, high] at which the bound is at most the target (high if there is
    none)."""
    if curve.log_delta(0.0) <= target:
        return 0.0
    if high <= 0.0 or curve.log_delta(high) > target:
        return high
    root = _root(lambda e: max(curve.log_delta(e), -1e4) - target, 0.0, high, precision=1e-8)
    return min(high, _nudge(root, 1.0 + 1e-14, lambda e: curve.log_delta(e) <= target))


def delta(parts: Sequence[Part], direction: Direction, epsilon: float) -> tuple[float, bool]:
    """A delta that is never too small, and whether it is known to be tight."""
    releases = sum(p.releases for p in parts)
    log_value, _ = Renyi(parts=parts, direction=direction).delta(epsilon)
    best = math.exp(log_value)
    tolerance = tolerance_of(epsilon)
    for _ in range(6):
        if best == 0.0:
            return best, True
        renyi = Renyi(parts=parts, direction=direction, cut=_CUT * best / releases)
        _, order = renyi.delta(epsilon)
        p = plan(
            renyi, order=order, epsilon=epsilon, log_delta=math.log(best) - 2.0, tolerance=tolerance
        )
        answer = renyi.on(p.line) if p.points <= _MOST_POINTS else None
        if answer is None:
            return best, False
        value = math.exp(build_curve(*answer, p.line, p.smoothing).log_delta(epsilon)) + renyi.tail
        sharper = math.exp(build_curve(*answer, p.line, 0.5 * p.smoothing).log_delta(epsilon))
        settled = value > 0.5 * best
        best = min(best, value)
        if settled and value - sharper - renyi.tail <= 1e-3 * value:
            return best, True
        tolerance /= 2.0
    return best, False
