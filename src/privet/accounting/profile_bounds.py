"""Bounds of the privacy profile at many epsilons: each transform serves a whole neighbourhood.

`accountant_choice` answers for one epsilon and throws its transform away. What a transform says of
delta holds at every epsilon, and is close over a range of them, so a curve of hundreds of points
takes a dozen transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from privet.accounting import contour_integral, fft_accountant
from privet.accounting.accountant_choice import FEW_DISTINCT, FEW_RELEASES, PROFILE_ERROR
from privet.accounting.privacy_loss import Array, Direction, LossPart
from privet.accounting.renyi_curve import RenyiCurve

_CLOSE = 4e-3
"""How close the two bounds of delta should be, relative to it: rates are then good to a thousandth,
as most of a rate is another term, without an error."""
_PLANNED = 1e-3
"""How close they are planned to be where a transform is made for: they part on the way from there,
and would otherwise be too far apart next to it."""
SMALLEST_DELTA = 1e-13
"""A delta below this is not looked at closely: no rate that anybody asks for feels it."""
_NEAREST = 3
"""Transforms that are asked about one epsilon, the nearest first."""
_MOST_ANCHORS = 24
"""Epsilons that transforms are planned for, in each direction: a curve mostly takes ten."""
_MOST_OF_LONG = 6
"""As many for a schedule with more different steps than `accountant_choice` remembers: a transform
of it takes a second."""
_At = Callable[[float], tuple[float, float]]


@final
class ProfileBounds:
    """delta of a composition in one direction, from below and from above, at any epsilons >= 0.

    Without the failures of its parts, which the caller adds.
    """

    def __init__(self, parts: Sequence[LossPart], direction: Direction) -> None:
        self.parts, self.direction = tuple(parts), direction
        self.ceiling = math.fsum(p.supremum(direction) for p in parts)
        self._planned: dict[float, list[_At]] = {}
        short = sum(p.distinct for p in self.parts) <= FEW_DISTINCT
        self._most_anchors = _MOST_ANCHORS if short else _MOST_OF_LONG
        self._releases = fft_accountant.releases_of(self.parts, direction)

    def at(self, epsilons: Array) -> tuple[Array, Array]:
        """Bounds of delta, (from below, from above), at increasing epsilons; both fall."""
        e = np.asarray(epsilons, dtype=float)
        low, high = self._closed_form(e) or self._by_transforms(e)
        beyond = e >= self.ceiling
        low, high = np.where(beyond, 0.0, low), np.where(beyond, 0.0, np.minimum(high, 1.0))
        return np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)

    def _closed_form(self, e: Array) -> tuple[Array, Array] | None:
        if len(self.parts) != 1 or self.parts[0].releases != 1:
            return None
        value = self.parts[0].profile(e, self.direction)
        if value is None:
            return None
        return value * (1.0 - PROFILE_ERROR), value * (1.0 + PROFILE_ERROR)

    def _by_transforms(self, e: Array) -> tuple[Array, Array]:
        low, high = np.zeros(len(e)), np.ones(len(e))
        self._tighten(e, low, high, list(self._planned))
        while len(self._planned) < self._most_anchors:
            loose = [k for k in self._loose(e, low, high) if float(e[k]) not in self._planned]
            if not loose:
                break
            where = float(e[loose[len(loose) // 2]])
            self._planned[where] = self._plan_for(where)
            self._tighten(e, low, high, [where])
        for k in np.nonzero((low <= 0.0) & (high == 1.0) & (e < self.ceiling))[
            0
        ]:  # no transform knows it
            renyi = RenyiCurve(parts=self.parts, direction=self.direction)
            high[k] = min(high[k], math.exp(renyi.delta(float(e[k]))[0]))
        return low, high

    def _loose(self, e: Array, low: Array, high: Array) -> list[int]:
        far = (high - low > _CLOSE * high) & (e < self.ceiling) & (high > SMALLEST_DELTA)
        return [int(k) for k in np.nonzero(far)[0]]

    def _tighten(self, e: Array, low: Array, high: Array, anchors: list[float]) -> None:
        for k in self._loose(e, low, high):
            at = float(e[k])
            for anchor in sorted(anchors, key=lambda a: abs(a - at))[:_NEAREST]:
                for bounds in self._planned[anchor]:
                    under, over = bounds(at)
                    low[k], high[k] = np.fmax(low[k], under), np.fmin(high[k], over)
                if high[k] - low[k] <= _CLOSE * high[k]:
                    break

    def _plan_for(self, epsilon: float) -> list[_At]:
        """New bounds for the neighbourhood of an epsilon, by the method that is tight there."""
        few = sum(p.releases for p in self.parts) <= FEW_RELEASES
        methods = (self._on_lattice, self._by_contour)
        found: list[_At] = []
        for method in methods if few else methods[::-1]:
            found += method(epsilon)
            values = [bounds(epsilon) for bounds in found]
            low = max((v[0] for v in values), default=0.0)
            high = min((v[1] for v in values if not math.isnan(v[1])), default=1.0)
            if high - low <= _CLOSE * high:
                break
        return found

    def _by_contour(self, epsilon: float) -> list[_At]:
        planned = list(
            contour_integral.plan_near(self.parts, self.direction, epsilon, close=_PLANNED)
        )
        return [bounds.delta_at for bounds in planned[-1:]]

    def _on_lattice(self, epsilon: float) -> list[_At]:
        if self._releases is None:
            return []
        guess, _ = RenyiCurve(parts=self.parts, direction=self.direction).delta(epsilon)
        grids = list(
            fft_accountant.plan_near(self._releases, self.direction, epsilon, math.exp(guess))
        )
        upper = [g.delta_at for g, sign in grids if sign > 0.0][-1]
        lower = [g.delta_at for g, sign in grids if sign < 0.0][-1]
        return [lambda e: (lower(e), upper(e))]
