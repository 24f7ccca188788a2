"""delta(epsilon) of a composition as one integral in the complex plane, from above and from below.

With K(z) = sum of log E[e^(z L_t)] over the parts and any order lambda > 0,

    delta(epsilon) = 1/(2 pi) * integral of e^(K(z) - z epsilon) / (z (z + 1)) dw,  z = lambda + iw,

because 1/(z (z+1)) is the Laplace transform of (1 - e^(-y))_+. Four approximations, each of which
raises the result (proofs in docs/theory/contour.md):

1. the trapezoid rule of period P = 2 pi / spacing gives sum_m e^(lambda m P) delta(epsilon + m P);
2. one extra Gaussian release of ratio mu0 is composed in, which makes the integrand decay;
3. what lies beyond the last frequency is bounded by that Gaussian and added;
4. the error bounds of K, reported by each part, are added in absolute value.

From below, the same values of K serve: the extra release adds at most mu0^2 e^(mu0^2/8) times the
integral of e^(K(z) - z epsilon + mu0^2 z (z+1) / 2), which is a density and computed alike, and the
other terms of the trapezoid rule have bounds of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privet.accounting.gaussian import _nudge, _root
from privet.accounting.privacy_loss import (
    LARGEST_EXPONENT,
    MANY_ROUNDINGS,
    ROUNDOFF,
    TINY,
    Array,
    Direction,
    LossPart,
    VerticalLine,
)
from privet.accounting.renyi_curve import RenyiCurve

ALIAS = math.log(1e6)
"""log of delta over what the shifted copies of the trapezoid rule may add: below the tolerance."""
TRUNCATION = math.log(3e5)
"""log of delta over what may lie beyond the last frequency; each e more costs few points."""
_MOST_POINTS = 12_000
"""Frequencies of one line: bounds the time of an answer; the FFT is asked where more are needed."""
_CUT = 1e-4
"""Share of delta that the cut-off of rare losses may take: less than the tolerance, and the
losses kept need few points."""


def tolerance_of(epsilon: float, spread: float) -> float:
    """How much a method may add to epsilon: relative to it, or to the usual size of the loss if
    that is far larger."""
    # 2.5e-4 keeps the two bounds within 0.1% of each other, which four digits of epsilon need; an
    # epsilon far below a twentieth of the spread is not worth as many points
    return 2.5e-4 * max(epsilon, 0.05 * spread)


def cut_for(parts: Sequence[LossPart], delta: float) -> float:
    """The probability of huge losses that each release may leave out."""
    return _CUT * delta / sum(p.releases for p in parts)


@dataclass(frozen=True, kw_only=True)
class ContourCurve:
    """Bounds of epsilon -> delta, evaluated from stored values of K on one vertical line."""

    line: VerticalLine
    scale: float
    """K at the order itself, smoothing included."""
    weights: Array
    """Complex coefficients of e^(-i w epsilon), relative to e^(scale - order * epsilon)."""
    slack: float
    """Truncation and rounding, on the same scale."""
    turning: float
    """Rounding of the phases w epsilon, for each unit of epsilon."""
    density: float
    """What the smoothing adds at most is this times the sum of `weights * z (z+1)`."""
    density_slack: float

    def log_delta(self, epsilon: float) -> float:
        """log of the bound from above; infinite where nothing can be said."""
        turn = np.exp(-1j * self.line.frequencies * epsilon)
        total = float(np.sum((self.weights * turn).real)) + self.slack + self.turning * epsilon
        if not math.isfinite(total + self.scale):
            return math.inf
        return self.scale - self.line.order * epsilon + math.log(max(total, TINY))

    def least_delta(self, epsilon: float, beyond: tuple[float, float]) -> float:
        """A bound from below; `beyond` is an order above the line's, and K with smoothing there.

        Copies of delta shifted to the left are at most 1 each; those to the right obey the Renyi
        bound of the order t: e^(K(t) - t epsilon) t^t / (t+1)^(t+1) at epsilon.
        """
        if not math.isfinite(self.density):
            return 0.0
        z, order = self.line.points, self.line.order
        turn = np.exp(-1j * self.line.frequencies * epsilon)
        factor = 1.0 - self.density * z * (z + 1.0)
        terms = self.weights * factor
        phases = 4.0 * ROUNDOFF * epsilon * float(np.sum(self.line.frequencies * np.abs(terms)))
        total = float(np.sum((terms * turn).real)) - self.slack - self.density_slack - phases
        if not (total > 0.0 and math.isfinite(self.scale)):
            return 0.0
        period = 2.0 * math.pi / self.line.spacing
        left = 1.0 / math.expm1(min(order * period, LARGEST_EXPONENT))
        t, k = beyond
        ratio = math.exp(-min((t - order) * period, LARGEST_EXPONENT))
        exponent = k - t * epsilon + t * math.log(t) - (t + 1.0) * math.log1p(t)
        # the exponent is a sum of numbers of some thousands at most, each good to a few roundings:
        # e^ of it is good to 1e-9
        right = math.exp(min(exponent, LARGEST_EXPONENT)) * ratio / (1.0 - ratio) * (1.0 + 1e-9)
        exponent = min(self.scale - order * epsilon + math.log(total), 0.0)
        return math.exp(exponent) * (1.0 - MANY_ROUNDINGS) - left * (1.0 + MANY_ROUNDINGS) - right


def build_curve(
    log_mgf: Array, errors: Array, line: VerticalLine, smoothing: float
) -> ContourCurve:
    """Assemble the bounds from K on the line; `smoothing` is mu0^2.

    With relative errors x_i of the factors, |prod(1 + x_i) - 1| <= e^(sum |x_i|) - 1. No term is in
    doubt by more than itself and |e^K(z)| <= e^K(order); a value that is not a number counts so.
    """
    z, w = line.points, line.frequencies
    both = z * (z + 1.0)
    extra = 0.5 * smoothing * both
    scale = float(log_mgf[0].real + extra[0].real)
    known = np.isfinite(log_mgf) & np.isfinite(errors)
    relative = np.exp(np.where(known, log_mgf + extra - scale, -np.inf))
    weights = (line.spacing / math.pi) * relative / both
    weights[0] *= 0.5
    size = np.abs(weights)
    most = (line.spacing / math.pi) / np.abs(both) * np.exp(extra.real - extra[0].real)
    exponents = np.abs(np.where(known, log_mgf, 0.0)) + np.abs(extra) + abs(scale)
    # 64: exponential, quotient and the pairwise sum of 12,000 terms; 4: products in the exponent
    errors = errors + ROUNDOFF * (64.0 + 4.0 * exponents)
    doubt = size * np.expm1(np.minimum(np.where(known, errors, LARGEST_EXPONENT), LARGEST_EXPONENT))
    rounding = np.where(known, np.minimum(doubt, size + most), most)
    # the terms k >= count are at most (1/pi) int_last^inf |e^(K - scale)| / |z (z+1)| dw
    last = float(w[-1])
    gone = math.exp(-0.5 * smoothing * last * last) / (math.pi * smoothing * last)
    # so much smoothing that e^(mu0^2 / 8) overflows (5600 / 8 = 700) belongs to an epsilon of a
    # million: nothing is known from below then
    grow = math.exp(smoothing / 8.0) if smoothing < 5600.0 else math.inf
    density = smoothing * grow * (1.0 + MANY_ROUNDINGS)
    return ContourCurve(
        line=line,
        scale=scale,
        weights=weights,
        slack=gone / last**2 + float(np.sum(rounding)) + 2.0 * ROUNDOFF * float(np.sum(size)),
        turning=4.0 * ROUNDOFF * float(np.sum(w * size)),
        density=density,
        density_slack=density * (gone + float(np.sum(rounding * np.abs(both)))),
    )


@dataclass(frozen=True, kw_only=True)
class ContourPlan:
    """Where to integrate: chosen for tightness; any choice is sound."""

    cut: float
    order: float
    period: float
    smoothing: float
    points: int
    beyond: tuple[float, float]
    """An order above `order`, and K there."""

    @property
    def line(self) -> VerticalLine:
        return VerticalLine(
            order=self.order, spacing=2.0 * math.pi / self.period, count=self.points
        )


def plan(
    renyi: RenyiCurve, *, order: float, epsilon: float, log_delta: float, tolerance: float
) -> ContourPlan | None:
    """Order, period, smoothing and number of points for a result near (epsilon, log_delta).

    The copies of delta shifted by the period to the left and right have to be small: e^(-order P)
    and, by the Renyi curve at a larger order t, e^(K(t) - t (epsilon + P) + order P). Of the orders
    tried the one that needs the fewest points is taken; None if none is good.
    """
    # around the best Renyi order, a quarter apart; the first 12, up to twice that order, are tried
    # for the line, all above it bound the copies. Any choice is sound.
    orders = order * np.geomspace(0.15, 8.0, 18)
    k = renyi.log_mgf(orders)
    smoothing = 2.0 * tolerance / (order + 1.0)
    best: ContourPlan | None = None
    for i in range(12):
        lam = float(orders[i])
        left = (ALIAS - log_delta) / lam
        above = orders[i + 1 :]
        with np.errstate(over="ignore", invalid="ignore"):
            right = (k[i + 1 :] - above * epsilon - log_delta + ALIAS) / (above - lam)
        j = int(np.argmin(np.nan_to_num(right, nan=math.inf, posinf=math.inf)))
        period = max(left, float(right[j]))
        if not math.isfinite(period + float(k[i])):
            continue
        level = max(float(k[i]) - lam * epsilon - log_delta, 0.0) + TRUNCATION
        last = math.sqrt(2.0 * level / smoothing)
        for _ in range(3):  # a fixed point of a logarithm: three rounds give the last point
            rest = level - math.log(math.pi * smoothing * last**3)
            last = math.sqrt(2.0 * max(rest, 1.0) / smoothing)
        points = max(32, math.ceil(last * period / (2.0 * math.pi)) + 1)
        # e^30 of the result is the size of the terms there, so that rounding is 1e-3 of it: no
        # order further off is of use
        if level < 30.0 and points < (best.points if best else _MOST_POINTS + 1):
            best = ContourPlan(
                cut=renyi.cut,
                order=lam,
                period=period,
                smoothing=smoothing,
                points=points,
                beyond=(float(above[j]), float(k[i + 1 + j])),
            )
    return best


@dataclass(frozen=True, kw_only=True)
class EpsilonBounds:
    """epsilon in one direction: at most `high`, at least `low`; `plan` is the contour's, if any."""

    high: float
    low: float
    plan: ContourPlan | None
    spread: float
    """The usual size of the loss, which `width` is judged by where epsilon is far smaller."""

    @property
    def width(self) -> float:
        """How far apart the bounds are."""
        return self.high - self.low


def epsilon(
    parts: Sequence[LossPart],
    direction: Direction,
    delta: float,
    *,
    spread: float = math.inf,
    rounds: int,
) -> EpsilonBounds:
    """Bounds of epsilon in one direction.

    The plan is refined, `rounds` times at most, until the bounds are as close as the tolerance asks
    for.
    """
    renyi = RenyiCurve(parts=parts, direction=direction, cut=cut_for(parts, delta))
    spread = min(spread, math.sqrt(renyi.spread))
    target = math.log(delta - renyi.tail)
    best, order = renyi.epsilon(target)
    best = max(best, 0.0)
    bounds = EpsilonBounds(high=best, low=0.0, plan=None, spread=spread)
    if math.isinf(best):
        return bounds
    # the Renyi bound is 1 / order to 4.6 / order too high (24 losses tried), 1.7 / order mostly
    guess, tolerance = max(best - 3.0 / order, 0.0), tolerance_of(best, spread)
    for _ in range(rounds):
        p = plan(renyi, order=order, epsilon=guess, log_delta=target, tolerance=tolerance)
        if p is None:
            return bounds
        answer = renyi.on(p.line)
        if answer is None:  # too dear: more smoothing needs fewer points
            tolerance *= 8.0  # points fall like its root: to a third
            continue
        curve = build_curve(*answer, p.line, p.smoothing)
        value = _solve(curve, target, best)
        beyond = (p.beyond[0], p.beyond[1] + 0.5 * p.smoothing * p.beyond[0] * (p.beyond[0] + 1.0))
        wanted = tolerance_of(value, spread)
        low = _solve_below(curve, beyond, delta, value, wanted)
        better = value < bounds.high or bounds.plan is None
        bounds = EpsilonBounds(
            high=min(bounds.high, value),
            low=max(bounds.low, low),
            plan=p if better else bounds.plan,
            spread=spread,
        )
        best = bounds.high
        if bounds.width <= 3.0 * wanted:  # smoothing puts the two bounds 2 of it apart, copies add
            return bounds
        guess, tolerance = best, min(tolerance, wanted) / max(1.0, (value - low) / (3.0 * wanted))
        order = renyi.delta(best)[1]  # the answer was far from the Renyi bound: centre on it
    return bounds


def holds(
    parts: Sequence[LossPart], direction: Direction, p: ContourPlan, epsilon: float, delta: float
) -> bool:
    """Whether (epsilon, delta) is certain in this direction too, by the plan of the other one."""
    renyi = RenyiCurve(parts=parts, direction=direction, cut=p.cut)
    answer = renyi.on(p.line)
    if answer is None:
        return False
    curve = build_curve(*answer, p.line, p.smoothing)
    return curve.log_delta(epsilon) <= math.log(delta - renyi.tail)


def _solve(curve: ContourCurve, target: float, high: float) -> float:
    """The least epsilon in [0, high] at which the bound is at most the target (high if there is
    none)."""
    if curve.log_delta(0.0) <= target:
        return 0.0
    if high <= 0.0 or curve.log_delta(high) > target:
        return high
    # -1e4 in place of less: false position wants finite numbers; 1e-8 is far below the tolerance of
    # 2.5e-4, and steps of 1e-14 (doubled as they go) end soon and cost no digit of that
    root = _root(lambda e: max(curve.log_delta(e), -1e4) - target, 0.0, high, precision=1e-8)
    return min(high, _nudge(root, 1.0 + 1e-14, lambda e: curve.log_delta(e) <= target))


def _solve_below(
    curve: ContourCurve, beyond: tuple[float, float], delta: float, high: float, step: float
) -> float:
    """An epsilon below `high` at which delta is certain to be more than `delta`; 0 if none."""
    low = high
    for _ in range(12):  # steps grow threefold: 12 reach 2.6e5 steps, past any useful bound
        low, high = low - step, low
        if low <= 0.0:
            return 0.0
        if curve.least_delta(low, beyond) > delta:
            break
        step *= 3.0
    else:
        return 0.0
    for _ in range(4):  # to a sixteenth of the last step
        middle = 0.5 * (low + high)
        if curve.least_delta(middle, beyond) > delta:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, kw_only=True)
class DeltaBounds:
    """Bounds of delta at any epsilon, close to each other near the one that they were planned for.

    They hold everywhere, so that one transform serves a whole neighbourhood.
    """

    curve: ContourCurve
    beyond: tuple[float, float]
    tail: float

    def delta_at(self, epsilon: float) -> tuple[float, float]:
        """Bounds of delta at one epsilon: (from below, from above)."""
        high = (
            math.exp(min(self.curve.log_delta(epsilon), 0.0)) * (1.0 + MANY_ROUNDINGS) + self.tail
        )
        return self.curve.least_delta(epsilon, self.beyond), high


def plan_near(
    parts: Sequence[LossPart], direction: Direction, epsilon: float, *, close: float = 2e-3
) -> Iterator[DeltaBounds]:
    """Bounds planned for one epsilon, each closer there than the last until they are `close`
    relative to delta; none if the Renyi bound is all that is known.

    2e-3 of delta is 1e-4 of epsilon at most, as order times epsilon is mostly 25 to 33 (measured).
    """
    plain = RenyiCurve(parts=parts, direction=direction)
    low, best = 0.0, math.exp(plain.delta(epsilon)[0])
    tolerance = tolerance_of(epsilon, math.sqrt(min(plain.spread, 1.0)))
    for _ in range(4):
        if best < TINY:
            return
        renyi = RenyiCurve(parts=parts, direction=direction, cut=cut_for(parts, best))
        _, order = renyi.delta(epsilon)
        # log(best) - 2: the Renyi bound is e^.9 to e^4.6 too high (24 losses tried)
        p = plan(
            renyi, order=order, epsilon=epsilon, log_delta=math.log(best) - 2.0, tolerance=tolerance
        )
        if p is None:
            return
        answer = renyi.on(p.line)
        if answer is None:  # too dear: more smoothing needs fewer points
            tolerance *= 8.0
            continue
        extra = 0.5 * p.smoothing * p.beyond[0] * (p.beyond[0] + 1.0)
        bounds = DeltaBounds(
            curve=build_curve(*answer, p.line, p.smoothing),
            beyond=(p.beyond[0], p.beyond[1] + extra),
            tail=renyi.tail,
        )
        yield bounds
        under, over = bounds.delta_at(epsilon)
        low, settled = max(low, under), over > 0.5 * best
        best = min(best, over)
        if settled and best - low <= close * best:
            return
        tolerance /= 2.0


def delta(parts: Sequence[LossPart], direction: Direction, epsilon: float) -> tuple[float, float]:
    """Bounds of delta in one direction at one epsilon: (from below, from above)."""
    low = 0.0
    best = math.exp(RenyiCurve(parts=parts, direction=direction).delta(epsilon)[0])
    for bounds in plan_near(parts, direction, epsilon):
        under, over = bounds.delta_at(epsilon)
        low, best = max(low, under), min(best, over)
    return low, best
