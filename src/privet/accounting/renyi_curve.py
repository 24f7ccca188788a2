"""The Renyi curve of a composition, and the order on it that gives the best bound.

Any order gives a sound bound; the best one also says where the contour should pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privet.accounting.privacy_loss import Array, Direction, LossPart, VerticalLine


@dataclass(frozen=True, kw_only=True)
class RenyiCurve:
    """The Renyi curve of a list of parts, in one direction."""

    parts: Sequence[LossPart]
    direction: Direction
    cut: float = 0.0

    def log_mgf(self, orders: Array) -> Array:
        """The transform K(t) = sum of log E[e^(t L)] over the parts, at real orders t."""
        total = np.zeros_like(orders)
        for part in self.parts:
            total = total + part.log_mgf(orders, self.direction, self.cut)
        return total

    def on(self, line: VerticalLine) -> tuple[Array, Array] | None:
        """K on a vertical line and a bound of its error; None if a part knows real orders only."""
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

    @cached_property
    def spread(self) -> float:
        """Roughly the variance of the loss, from K at a small order."""
        tiny = 1e-3  # an order at which K is its first two terms; with rounding 1e-13 / 1e-6 = 1e-7
        variance = 2.0 * float(self.log_mgf(np.array([tiny]))[0]) / (tiny * (1.0 + tiny))
        return min(max(variance, 1e-30), 1e30)  # roots and quotients of it stay float64

    def start(self, log_delta: float) -> float:
        """The order that would be best if the loss were Gaussian with the same spread."""
        # within the orders that `_minimise` looks at, e^-12 = 6e-6 to e^20 = 5e8
        return min(max(math.sqrt(-2.0 * log_delta / self.spread), 1e-4), 1e7)

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

    Any order gives a valid bound, so that a value near the least is as sound as the least. Numbers
    by trial: begun with a range of 2 or 30 in place of 6 to either side, and ended at steps of 5%
    or .1% in place of 1%, epsilon differs by less than 2e-5.
    """
    centre, width = math.log(start), math.log(6.0)
    least = math.inf
    for _ in range(40):  # a guard: a range that moves by 6 each time crosses all orders in ten
        logs = np.linspace(centre - width, centre + width, 9)
        # orders of 6e-6 to 5e8: beyond, no target that is asked for has its best one
        logs = logs[(logs > -12.0) & (logs < 20.0)]
        values = np.nan_to_num(f(np.exp(logs)), nan=math.inf, posinf=math.inf, neginf=math.inf)
        i = int(np.argmin(values))
        if math.isinf(values[i]) and math.isinf(least):  # orders too large for anything
            centre = max(centre - width, -10.0)
            continue
        if values[i] < least:
            least, centre = float(values[i]), float(logs[i])
        if 0 < i < len(logs) - 1 or not math.isfinite(values[i]) or width < 0.1:
            width /= 5.0
        if width < 0.04:
            break
    return least, math.exp(centre)
