"""Composition for a ledger: adding a loss costs the time of that loss, not of all before it.

`RunningTotal` holds what was added, with equal releases counted and Gaussians summed, so that the
composition of everything is there on demand. `IncrementalComposition` holds the transform
K(z) = sum of log E[e^(z L_t)] on one vertical line of the complex plane, to which a loss adds its
own values; epsilon follows from them by the integral of `privet.accounting.contour_integral`, which
is an upper bound for *any* line. The line is planned for the mixture so far and for results up to
some epsilon; a larger result makes it plan again, each time for twice the epsilon.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from privet.accounting import contour_integral
from privet.accounting.privacy_loss import Array, Direction, LossPart, PrivacyLoss, VerticalLine
from privet.accounting.running_total import RunningTotal
from privet.guarantee import Adjacency

_ORDERS = np.geomspace(0.02, 2e4, 72)
"""Orders at which K is looked at to plan a line: a fifth apart, over all that are of use."""
_MOST_POINTS = 1_500
"""Frequencies of a line: what every charge pays for. More smoothing is taken before more points."""
_CUT = 1e-3
"""Share of delta that the cut-off of rare losses may take, of all releases together: ten
times that of one answer, since room is left for ten times the releases."""
_MOST_RECENT = 64
"""Losses whose transforms are kept, for those who ask for one again and again: 3 MB at most."""
_ROOM = 10
"""How many times the releases so far a plan makes room for: a new plan costs the time of
all before it, so that it should be rare."""


@dataclass(frozen=True, kw_only=True)
class _Values:
    """K on the line in one direction, a bound of its error, and the probability left out."""

    k: Array
    errors: Array
    tail: float

    def plus(self, other: _Values) -> _Values:
        with np.errstate(invalid="ignore", over="ignore"):  # what is not a number is not known
            k = self.k + other.k
        # a complex sum is rounded by 2^-53 of its size in either part: by sqrt 2 of that in all
        errors = self.errors + other.errors + 2.3e-16 * np.abs(k)
        return _Values(k=k, errors=errors, tail=self.tail + other.tail)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Where K is kept, and for which results that is enough."""

    quadrature: VerticalLine
    smoothing: float
    cut: float
    most: float
    """The largest epsilon that is looked for."""
    room: int
    """Releases that the cut-off was made for."""

    def values(self, parts: Iterable[LossPart], direction: Direction) -> _Values:
        """Add up the transforms K of some parts on this line."""
        line = self.quadrature
        total = _Values(
            k=np.zeros(line.count, dtype=complex), errors=np.zeros(line.count), tail=0.0
        )
        for part in (simple for p in parts for simple in p.simplify()):
            answer = part.log_mgf_on(line, direction, self.cut)
            if answer is None:  # known at real orders only: a bound of every modulus on the line
                k = np.zeros(line.count, dtype=complex)
                errors = np.full(line.count, np.inf)
                k[0] = part.log_mgf(np.array([line.order]), direction, self.cut)[0]
                errors[0] = 0.0
                answer = k, errors
            tail = part.tail(direction, self.cut)
            total = total.plus(_Values(k=answer[0], errors=answer[1], tail=tail))
        return total

    def epsilon(self, values: _Values, delta: float, floor: float) -> float:
        """An epsilon of at least `floor` that these values certainly have; inf if above `most`.

        Every point where the bound of delta is small enough is an answer; the search begins at
        `floor`, where the last answer was.
        """
        if delta <= values.tail or not floor <= self.most or not np.isfinite(values.k[0]):
            return math.inf
        target = math.log(delta - values.tail)
        curve = contour_integral.build_curve(
            values.k, values.errors, self.quadrature, self.smoothing
        )
        if curve.log_delta(floor) <= target:
            return floor
        # a first step and a growth for speed alone (by trial, .0005 to .05)
        low, width = floor, 0.005 * self.most
        high = min(low + width, self.most)
        while not curve.log_delta(high) <= target:
            if high >= self.most:
                return math.inf
            low, width = high, 4.0 * width
            high = min(low + width, self.most)
        while high - low > 1e-5 * high + 1e-9:  # far below the 2.5e-4 that smoothing adds
            middle = 0.5 * (low + high)
            if curve.log_delta(middle) <= target:
                high = middle
            else:
                low = middle
        return high


@final
class IncrementalComposition:
    """An upper bound of epsilon at one delta of a composition that grows.

    **Guarantee**: `epsilon_with` and `epsilon` are never below the epsilon of the composed
    dominating pairs. Near `cap` they are within a few parts in 10^4 of it, mostly; for totals far
    below, within a few percent of the epsilon that the line was planned for. inf where nothing is
    known.

    >>> from privet.accounting import Gaussian, Pure
    >>> growing = IncrementalComposition(adjacency=Adjacency.ADD_REMOVE, delta=1e-5, cap=2.0)
    >>> for size in (0.1, 0.2, 0.3):
    ...     growing.add(Pure(epsilon_each=size)); growing.add(Gaussian(mu=size))
    >>> exact = growing.total.epsilon(1e-5)
    >>> exact <= growing.epsilon <= 1.02 * exact
    True
    """

    def __init__(self, *, adjacency: Adjacency, delta: float, cap: float) -> None:
        self.running_total = RunningTotal(adjacency)
        self.delta, self.cap = delta, cap
        self._line: _Line | None = None
        self._values: dict[Direction, _Values] = {}
        self._planned_at = -9  # `grown` is true from the first loss on
        self._latest: tuple[PrivacyLoss, float] | None = None
        self._floor = 0.0
        self._recent: OrderedDict[tuple[PrivacyLoss, Direction], _Values] = OrderedDict()

    @classmethod
    def of(cls, losses: Iterable[PrivacyLoss], **settings: object) -> IncrementalComposition:
        """A composition of some losses, none of them transformed yet."""
        growing = cls(**settings)  # type: ignore[arg-type]
        for loss in losses:
            growing.add(loss)
        return growing

    @property
    def total(self) -> PrivacyLoss:
        """The composition of everything added so far."""
        return self.running_total.total

    @property
    def epsilon(self) -> float:
        """A bound for everything added so far."""
        return self._epsilon(None)

    def epsilon_with(self, loss: PrivacyLoss) -> float:
        """A bound for everything added so far and one more."""
        return self._epsilon(loss)

    def add(self, loss: PrivacyLoss) -> None:
        """Add a loss; what `epsilon_with` found out about it is used again."""
        if self._line is not None:
            for direction, values in self._values.items():
                self._values[direction] = values.plus(self._contribution(loss, direction))
            if self._latest is not None and self._latest[0] == loss:  # epsilon only grows
                epsilon = self._latest[1]
                # a little below, for a line of other values (by trial, .9 to .999)
                self._floor = 0.98 * epsilon if math.isfinite(epsilon) else self._floor
        self.running_total.add(loss)

    def replay(self, losses: Iterable[PrivacyLoss]) -> float:
        """epsilon of `losses`, the very ones added here, each transformed by itself.

        Thousands of different sampled losses are otherwise taken together where they are similar,
        which costs a little. It takes the time of all of them.
        """
        again = IncrementalComposition(
            adjacency=self.running_total.adjacency, delta=self.delta, cap=self.cap
        )
        self._lay(None, self.cap)
        again._line, again._planned_at = self._line, self.running_total.count
        again._values = (
            {} if self._line is None else {d: self._line.values((), d) for d in Direction}
        )
        for loss in losses:
            again.add(loss)
        return again.epsilon

    def _epsilon(self, loss: PrivacyLoss | None) -> float:
        known, left = self.running_total.bound(loss, self.delta)
        return known if left is None else min(known, self._on_the_line(loss, left))

    def _on_the_line(self, loss: PrivacyLoss | None, delta: float) -> float:
        before = self._line, self._values, self._planned_at, self._floor
        releases = self.running_total.releases + sum(
            p.releases for p in (loss.parts if loss else ())
        )
        # a tenth more losses, and eight: planning again costs the time of all of them
        grown = self.running_total.count > 1.1 * self._planned_at + 8
        if (self._line is None and grown) or (self._line and releases > self._line.room):
            self._lay(loss, self._line.most if self._line else 0.0)
        epsilon = self._read(loss, delta)
        for _ in range(3):
            if epsilon < math.inf or self._line is None or self._line.most >= self.cap:
                break
            self._lay(loss, 2.0 * self._line.most)
            epsilon = self._read(loss, delta)
        if epsilon == math.inf and grown and math.isfinite(self.cap):
            self._lay(loss, self.cap)  # the mixture is another than it was
            epsilon = self._read(loss, delta)
        if not epsilon <= self.cap and before[0] is not None:
            # a loss that will not be added must not decide where to look for others
            self._line, self._values, self._planned_at, self._floor = before
            self._latest = None
            self._recent.clear()
        return epsilon

    def _read(self, loss: PrivacyLoss | None, delta: float) -> float:
        if self._line is None:
            return math.inf
        worst = self._floor
        for direction, values in self._values.items():
            if loss is not None:
                values = values.plus(self._contribution(loss, direction))
            worst = self._line.epsilon(values, delta, worst)
            if worst == math.inf:
                break
        self._latest = None if loss is None else (loss, worst)
        return worst

    def _contribution(self, loss: PrivacyLoss, direction: Direction) -> _Values:
        assert self._line is not None
        key = (loss, direction)
        if key in self._recent:
            self._recent.move_to_end(key)
            return self._recent[key]
        values = self._line.values(loss.parts, direction)
        self._recent[key] = values
        if len(self._recent) > _MOST_RECENT:
            self._recent.popitem(last=False)
        return values

    def _lay(self, loss: PrivacyLoss | None, least: float) -> None:
        """A new line for results up to `least` at least, and K of everything so far on it."""
        self._recent.clear()
        self._planned_at, self._floor, self._latest = self.running_total.count, 0.0, None
        total = self.running_total.total.parts
        parts = total if loss is None else (*total, *loss.parts)
        releases = max(1, sum(p.releases for p in parts))
        room = _ROOM * releases
        self._line = plan_line(
            parts,
            delta=self.delta,
            least=least,
            cap=self.cap,
            room=room,
            cut=_CUT * self.delta / room,
        )
        self._values = {}
        if self._line is not None:
            for direction in Direction:
                self._values[direction] = self._line.values(total, direction)


def plan_line(
    parts: Iterable[LossPart], *, delta: float, least: float, cap: float, room: int, cut: float
) -> _Line | None:
    """A line for the mixture of `parts`, scaled up until it has the epsilon that is looked for.

    The choice is for tightness and speed; any line gives an upper bound. Numbers are by trial where
    a comment gives a range: over that, the epsilons of a ledger of 150 sampled, pure and Laplace
    losses move by less than 3e-3. Orders, period and number of points are weighed as
    `contour_integral.plan` does, for the result itself and for a quarter of it. The
    smoothing adds 2.5e-4 of the epsilon that is looked for, more where that takes too many points.
    """
    parts = [simple for p in parts for simple in p.simplify()]
    log_delta = math.log(delta)
    k = np.zeros_like(_ORDERS)
    for part in parts:
        with np.errstate(over="ignore", invalid="ignore"):
            k = k + part.log_mgf(_ORDERS, Direction.REMOVE, cut)
    conversion = _ORDERS * np.log(_ORDERS) - (_ORDERS + 1.0) * np.log1p(_ORDERS)

    def renyi(scale: float) -> float:
        return float(np.nanmin((scale * k - log_delta + conversion) / _ORDERS))

    now = max(renyi(1.0), 1e-3)  # no plan is for an epsilon below a thousandth
    most = max(least, 1.3 * now)  # some room to grow (by trial, 1.05 to 2)
    if most > 0.7 * cap:  # the next plan would be for the cap: make it now (by trial, .3 to .95)
        most = cap
    if not math.isfinite(most):
        return None
    # 1.15: the Renyi bound is 14% above epsilon in the median (by trial, 1 to 1.5)
    levels = [(_scaled(renyi, share * 1.15 * most), share * most) for share in (1.0, 0.25)]
    for tolerance in (2.5e-4 * most, 1e-3 * most, 4e-3 * most):  # each with half of the points
        best: tuple[int, float, float, float] | None = None
        for i in range(len(_ORDERS) - 1):
            order = float(_ORDERS[i])
            period, level = (contour_integral.ALIAS - log_delta) / order, 0.0
            for scale, epsilon in levels:
                beyond = (
                    scale * k[i + 1 :]
                    - _ORDERS[i + 1 :] * epsilon
                    - log_delta
                    + contour_integral.ALIAS
                )
                period = max(period, float(np.nanmin(beyond / (_ORDERS[i + 1 :] - order))))
                level = max(level, scale * float(k[i]) - order * epsilon - log_delta)
            if not (math.isfinite(period) and level < 30.0):  # as in `contour_integral.plan`
                continue
            smoothing = 2.0 * tolerance / (order + 1.0)
            last = math.sqrt(2.0 * (level + contour_integral.TRUNCATION) / smoothing)
            points = max(32, math.ceil(last * period / (2.0 * math.pi)) + 1)
            if best is None or points < best[0]:
                best = points, order, period, smoothing
        if best is not None and best[0] <= _MOST_POINTS:
            points, order, period, smoothing = best
            line = VerticalLine(order=order, spacing=2.0 * math.pi / period, count=points)
            return _Line(quadrature=line, smoothing=smoothing, cut=cut, most=most, room=room)
    return None


def _scaled(renyi: Callable[[float], float], epsilon: float) -> float:
    """How many times the mixture reaches `epsilon`, roughly."""
    # a ledger's first loss of a billion, or its trillionth: roughly is enough
    low, high = 1e-9, 1e12
    for _ in range(60):  # by halves of 21 decades: to the last digit
        middle = math.sqrt(low * high)
        low, high = (middle, high) if renyi(middle) < epsilon else (low, middle)
    return low
