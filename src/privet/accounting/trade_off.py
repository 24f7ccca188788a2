"""What a release leaves an attacker: the whole trade-off curve (f-DP), from both sides.

An attacker says "this unit was used" where it was not with probability FPR, and where it was with
probability TPR. With the privacy profiles delta_in of (with | without) and delta_out of (without |
with), for every epsilon >= 0 and every attack

    TPR <= e^epsilon FPR + delta_in(epsilon),    1 - FPR <= e^epsilon (1 - TPR) + delta_out(epsilon)

and the least of these lines is attained by the likelihood-ratio test of the dominating pair (Dong,
Roth and Su 2019). Both are one family: for x = e^epsilon < 1, delta_in(x) = 1 - x + x
delta_out(1/x), and TPR <= x FPR + delta_in(x) for every x > 0. As a function of x the profile is
convex, which is what makes finitely many x enough:

- *from above*, the least of the lines at some x is a bound whatever they are;
- *from below*, between two x the profile lies above the lines drawn on from the neighbours, since
  its slope only grows.

Who is to be found is up to the attacker (somebody there, or somebody missing), so a rate is the
larger one of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import ndtr, ndtri

from privet import _check
from privet.accounting.accountant_choice import _bounds, _directions, _failure, _simplify
from privet.accounting.gaussian import Gaussian
from privet.accounting.privacy_loss import Array, Direction, LossPart, PrivacyLoss, compose
from privet.accounting.profile_bounds import SMALLEST_DELTA, ProfileBounds
from privet.accounting.pure_and_approximate_dp import ApproximateDP
from privet.guarantee import Adjacency, number_to_json

RATES = (0.0001, 0.001, 0.01, 0.05, 0.1)
"""False-positive rates at which an attacker is bounded in records and tables."""
_LARGEST_EPSILON = 700.0
"""e^epsilon is a double up to here; a rate at which more would matter is below 1e-300."""
_GAP = 8e-4
"""How much of a rate the lines may seem to give away; it is about half of that."""
_SMALLEST_RATE = 1e-7
"""False-positive rates from here on are drawn closely: one alarm in ten million is none."""
_MOST_LINES = 180
"""Of one direction. They are placed where most is given away, so that more would not show."""
_LINES_AT_ONCE = 40
"""New lines in each round, those of the widest gaps: a gap halves its neighbours' too."""
_ERROR = 1e-12
"""Of a sum of two positive numbers and a product; a thousand times what they have."""
FLOOR = 1e-6
"""`mu` compares with a Gaussian release at rates of false alarms and misses of at least this.

Without a floor, the mu that dominates sampled training is that of no sampling at all: of the
outcome in which every batch had the unit, however absurdly small its chance is."""


@final
@dataclass(frozen=True, kw_only=True)
class _Lines:
    """Bounds of a profile at increasing x = e^epsilon, from far below 1 to far above."""

    x: Array
    low: Array
    high: Array
    failure: float

    @classmethod
    def of(cls, epsilons: Array, one: _Bracket, other: _Bracket) -> _Lines:
        """From delta_in and delta_out at epsilons that begin with 0."""
        below = np.exp(-epsilons[:0:-1])
        x = np.concatenate([below, np.exp(epsilons)])
        low, high = (
            np.concatenate([1.0 - below * (1.0 - b[:0:-1]), a])
            for a, b in zip((one.low, one.high), (other.low, other.high), strict=True)
        )
        return cls(x=x, low=low, high=_convex(x, high), failure=min(one.failure, other.failure))

    def most(self, rates: Array) -> Array:
        """Bounds of the TPR from above."""
        values = np.min(np.multiply.outer(rates, self.x) + self.high, axis=-1)
        return np.asarray(np.minimum(values * (1.0 + _ERROR), 1.0))

    def least(self, rates: Array) -> Array:
        """Bounds of the best attack's TPR from below."""
        x, value = self._corners(self.low, self.high)
        # beyond the ends the profile is at least 1 - x, and at least what fails
        x = np.concatenate([x, self.x, self.x[[0, -1]]])
        value = np.concatenate([value, self.low, [1.0 - self.x[0], self.failure]])
        found = np.min(np.multiply.outer(rates, x) + value, axis=-1)
        return np.asarray(np.maximum(found * (1.0 - _ERROR), rates))

    def _corners(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Where the lines drawn on from both sides of each interval meet: (x, value).

        The slope of a profile is between -1 and 0, and grows, so that the steepest rise from any
        point before bounds it from below, and the least to any point behind from above.
        """
        x, step = self.x, np.diff(self.x)
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = (low[:, None] - high) / (x[:, None] - x)  # from each point to every other
        before = np.tril(np.ones_like(slopes, dtype=bool), -1)
        left = np.max(np.where(before, slopes, -1.0), axis=1)[:-1]
        right = np.min(np.where(before.T, slopes, 0.0), axis=1)[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            way = (low[1:] - low[:-1] - right * step) / (left - right)
        way = np.clip(np.where(np.isfinite(way), way, 0.0), 0.0, step)
        return x[:-1] + way, np.maximum(low[:-1] + left * way, low[1:] + right * (way - step))

    def vertices(self) -> Array:
        """The rates at which one line takes over from the next, for every interval."""
        return np.clip(-np.diff(self.high) / np.diff(self.x), 0.0, 1.0)

    def gaps(self) -> Array:
        """For every interval, how much of the TPR the lines give away at its vertex."""
        rates = self.vertices()
        most = self.x[:-1] * rates + self.high[:-1]
        x, value = self._corners(self.high, self.high)
        away = 1.0 - (rates * x + value) / np.maximum(most, 1e-300)
        return np.where(rates > _SMALLEST_RATE, away, 0.0)


@final
@dataclass(frozen=True, kw_only=True)
class _Bracket:
    """delta at some epsilons in one direction, and the chance of an unbounded loss."""

    low: Array
    high: Array
    failure: float

    def joined(self, other: _Bracket, order: Array) -> _Bracket:
        """Both, sorted by `order`; a profile falls."""
        low = np.concatenate([self.low, other.low])[order]
        high = np.concatenate([self.high, other.high])[order]
        low, high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)
        return _Bracket(low=low, high=high, failure=self.failure)


def _convex(x: Array, values: Array) -> Array:
    """The largest convex function below `values`: above a convex one, its chords are bounds too."""
    hull: list[int] = []
    for k in range(len(x)):
        while len(hull) > 1:
            i, j = hull[-2], hull[-1]
            if (values[j] - values[i]) * (x[k] - x[i]) < (values[k] - values[i]) * (x[j] - x[i]):
                break
            hull.pop()
        hull.append(k)
    chords = np.interp(x, x[hull], values[hull]) * (1.0 + _ERROR)
    return np.asarray(np.minimum(values, chords))


@final
@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """The best attack on one unit: its true-positive rate at every false-positive rate.

    **Guarantee**: the second number of each pair is never below what any attack reaches, whatever
    it knows; the first is never above what the best attack on the dominating pair reaches.

    >>> from privet.accounting import Gaussian, SampledGaussian
    >>> training = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=1000).trade_off()
    >>> low, high = training.tpr(0.01)
    >>> low <= high < 1.01 * low, round(high, 3)
    (True, 0.029)
    >>> Gaussian(mu=0.5).trade_off().mu()
    (0.5, 0.5)
    """

    epsilons: Array
    """Where the profiles were computed, from 0 on."""
    lines: tuple[_Lines, ...]
    """One for each direction of the neighbouring relation; one alone where they are alike."""
    adjacency: Adjacency
    exact_mu: float | None = None
    """Where it is exactly the curve of a Gaussian release; infinite where anything may happen."""

    def tpr(self, fpr: float) -> tuple[float, float]:
        """Bounds of the largest true-positive rate at a false-positive rate: (low, high)."""
        low, high = self.curve(np.array([_check.unit("fpr", fpr)]))
        return float(low[0]), float(high[0])

    def curve(self, fpr: Array) -> tuple[Array, Array]:
        """`tpr` at many rates."""
        a = np.asarray(fpr, dtype=float)
        if self.exact_mu is not None:
            value = np.ones_like(a) if math.isinf(self.exact_mu) else ndtr(ndtri(a) + self.exact_mu)
            # ndtr and ndtri are good to 1e-13, and a tail's relative error grows with its square
            error = 1e-11 if math.isfinite(self.exact_mu) else 0.0
            return np.maximum(value * (1.0 - error), a), np.minimum(value * (1.0 + error), 1.0)
        low = np.max([lines.least(a) for lines in self.lines], axis=0)
        high = np.max([lines.most(a) for lines in self.lines], axis=0)
        return np.minimum(low, high), high

    def advantage(self) -> tuple[float, float]:
        """Bounds of the largest TPR - FPR: delta at epsilon 0, the total variation distance."""
        if self.exact_mu is not None:
            value = math.erf(self.exact_mu / math.sqrt(8.0))
            return value * (1.0 - _ERROR), min(value * (1.0 + _ERROR), 1.0)
        at = [(lines, int(np.searchsorted(lines.x, 1.0))) for lines in self.lines]
        high = min(float(lines.high[k]) for lines, k in at)  # one distance, seen from both ends
        return min(max(float(lines.low[k]) for lines, k in at), high), high

    def precision(self, prior: float, fpr: float) -> float:
        """At most this share of those whom an attack points at are members.

        Of all whom it looks at a share of `prior` are, and `fpr` of the others are pointed at.

        >>> from privet.accounting import Pure
        >>> round(Pure(epsilon_each=1.0).trade_off().precision(0.5, 0.01), 3)
        0.731
        """
        prior = _check.unit("prior", prior)
        found = prior * self.tpr(fpr)[1]
        alarms = (1.0 - prior) * fpr
        return found / (found + alarms) if found + alarms > 0.0 else 1.0

    def guess(self, baseline: float) -> float:
        """At most this share of guesses about a unit are right, of any kind of secret.

        `baseline` is the share that is right without the release (the most likely value's chance).
        With S_z the guess of z and Q the law without the unit, sum p_z P_z(S_z) <= sum p_z
        F(Q(S_z)) <= F(max p_z): F is concave. (Hayes, Mahloujifar and Balle 2023.)
        """
        b = _check.unit("baseline", baseline)
        if self.exact_mu is not None:
            return self.tpr(b)[1]
        high = np.max([lines.high for lines in self.lines], axis=0)
        return float(min(1.0, np.min(b * self.lines[0].x + high) * (1.0 + _ERROR)))

    def mu(self, floor: float = FLOOR) -> tuple[float, float]:
        """Bounds of the smallest mu whose Gaussian release is nowhere safer: (low, high).

        At every false-positive rate of at least `floor` at which the best attack misses at least
        as many.

        >>> from privet.accounting import Pure
        >>> low, high = Pure(epsilon_each=1.0).trade_off().mu()
        >>> low <= high < 1.001 * low, round(high, 3)
        (True, 1.232)
        """
        a = _check.open_unit("floor", floor)
        if self.exact_mu is not None:
            return self.exact_mu, self.exact_mu
        low, high = 0.0, 0.0
        for lines in self.lines:
            # vertices left of the diagonal; the others are those of the other direction
            rates = np.append(lines.vertices()[len(lines.x) // 2 - 1 :], a)
            rates = rates[rates >= a]
            most = lines.most(rates)
            inside = (most <= 1.0 - a) | (rates == a)
            rates, most = rates[inside], most[inside]
            least = np.minimum(lines.least(rates), most)
            with np.errstate(invalid="ignore"):
                high = max(high, float(np.max(ndtri(most) - ndtri(rates))))
                low = max(low, float(np.max(ndtri(least) - ndtri(rates))))
        # near 1 a TPR has an error of 1e-16, and ndtri passes on 1 / (floor sqrt(2 pi)) of it
        error = 1e-15 / a if high < math.inf else 0.0
        return max(low * (1.0 - 1e-9) - error, 0.0), high * (1.0 + 1e-9) + error

    def to_dict(self, rates: tuple[float, ...] = RATES) -> dict[str, Any]:
        """A JSON-ready mapping: rates, advantage and mu, each from below and from above."""
        low, high = self.curve(np.array(rates))
        advantage, mu = self.advantage(), self.mu()
        return {
            "points": [
                {"fpr": a, "tpr_low": float(b), "tpr": float(c)}
                for a, b, c in zip(rates, low, high, strict=True)
            ],
            "advantage_low": advantage[0],
            "advantage": advantage[1],
            "mu_low": number_to_json(mu[0]),
            "mu": number_to_json(mu[1]),
            "mu_floor": FLOOR,
        }


def trade_off(loss: PrivacyLoss) -> TradeOff:
    """The trade-off curve of a loss or composition; `PrivacyLoss.trade_off` is the way in."""
    parts = _simplify(loss)
    if len(parts) == 1 and isinstance(parts[0], Gaussian):
        return _gaussian_curve(parts[0].mu, loss.adjacency)
    simpler = compose([p.lower_bound() for p in parts], adjacency=loss.adjacency).parts
    directions = _directions(parts)
    curves = [_Curve(parts=parts, simpler=simpler, direction=d) for d in directions]
    epsilons = _first_epsilons(parts)
    brackets = [curve.at(epsilons) for curve in curves]
    while True:
        lines = tuple(
            _Lines.of(epsilons, *pair) for pair in zip(brackets, brackets[::-1], strict=True)
        )
        new = _wanting(epsilons, lines)
        if not len(new) or len(epsilons) >= _MOST_LINES:
            return TradeOff(epsilons=epsilons, lines=lines, adjacency=loss.adjacency)
        order = np.argsort(np.concatenate([epsilons, new]))
        epsilons = np.concatenate([epsilons, new])[order]
        brackets = [
            old.joined(curve.at(new), order) for old, curve in zip(brackets, curves, strict=True)
        ]


def trade_off_of_statement(
    epsilon: float, delta: float, adjacency: Adjacency = Adjacency.ADD_REMOVE
) -> TradeOff:
    """The curve where nothing is known but one pair (epsilon, delta): that of the worst release.

    >>> known = trade_off_of_statement(1.0, 1e-5)
    >>> round(known.tpr(0.01)[1], 4), trade_off_of_statement(math.inf, 1e-5).tpr(0.01)
    (0.0272, (1.0, 1.0))
    """
    if math.isinf(epsilon):
        return _gaussian_curve(math.inf, adjacency)
    return trade_off(ApproximateDP(epsilon_each=epsilon, delta_each=delta, adjacency=adjacency))


def _gaussian_curve(mu: float, adjacency: Adjacency) -> TradeOff:
    return TradeOff(epsilons=np.zeros(1), lines=(), adjacency=adjacency, exact_mu=mu)


def _first_epsilons(parts: tuple[LossPart, ...]) -> Array:
    """0, some on the way, and the last one, with a delta that no rate of interest feels."""
    failure = _failure(parts)
    ceiling = max(math.fsum(p.supremum(d) for p in parts) for d in _directions(parts))
    top = _bounds(parts, failure + (1.0 - failure) * SMALLEST_DELTA)[1] if failure < 1.0 else 0.0
    if ceiling < 1.1 * top:
        top = ceiling
    top = min(top, _LARGEST_EPSILON)
    return np.unique(
        [0.0, *(top * np.linspace(0.125, 1.0, 8)), *(top * np.geomspace(1e-3, 0.1, 5))]
    )


def _wanting(epsilons: Array, lines: tuple[_Lines, ...]) -> Array:
    """The middles of the intervals in which the lines give most away, and too much."""
    n = len(epsilons) - 1
    gaps = np.max([one.gaps()[n:] for one in lines], axis=0)
    gaps = np.where(np.diff(epsilons) > 1e-4 * epsilons[-1], gaps, 0.0)
    worst = np.argsort(-gaps, kind="stable")[:_LINES_AT_ONCE]
    chosen = np.sort(worst[gaps[worst] > _GAP])
    return np.asarray(0.5 * (epsilons[chosen] + epsilons[chosen + 1]))


@final
class _Curve:
    """The profile in one direction with what fails, of the parts and of parts that cost less."""

    def __init__(
        self, *, parts: tuple[LossPart, ...], simpler: tuple[LossPart, ...], direction: Direction
    ) -> None:
        self._upper = ProfileBounds(parts, direction)
        self._lower = self._upper if simpler == parts else ProfileBounds(simpler, direction)
        self.failure = _failure(parts)

    def at(self, epsilons: Array) -> _Bracket:
        """Bounds of delta at increasing epsilons."""
        low, high = self._upper.at(epsilons)
        if self._lower is not self._upper:
            low = self._lower.at(epsilons)[0]
        f = self.failure
        low, high = f + (1.0 - f) * np.minimum(low, high), f + (1.0 - f) * high
        return _Bracket(low=low * (1.0 - _ERROR), high=np.minimum(high * (1.0 + _ERROR), 1.0),
                        failure=f * (1.0 - _ERROR))  # fmt: skip
