"""What every mechanism must pass: law, tail, grid, replayed sensitivity, order of payment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from privet.accounting import PrivacyLoss
from privet.audit.conformance.report import LEVEL, Check, Report, run
from privet.errors import PrivetError
from privet.guarantee import Adjacency
from privet.ledger import Scope
from privet.mechanisms.mechanism import Mechanism
from privet.noise import Source
from privet.sensitivity import BoundedValue

Floats = NDArray[np.float64]
Cdf = Callable[[Floats], Any]
EXTREMES = (0.0, 1e-30, 1.0, -1.0, 1e30, -1e30, math.inf, math.nan)
"""Entries that clipping may stumble over: squares beyond float32, no numbers."""


def gaussian_cdf(x: Floats) -> Any:
    """The distribution function of the standard normal law."""
    return special.ndtr(x)


def laplace_cdf(x: Floats) -> Any:
    """The distribution function of the density e^-|x| / 2."""
    return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0.0)), 1.0 - 0.5 * np.exp(-np.abs(x)))


@final
@dataclass(frozen=True, kw_only=True)
class MechanismSubject:
    """A mechanism that adds noise to a bounded value, and what it says of itself.

    - `make(scale)`: the mechanism; `cdf`: the law of its noise divided by the scale.
    - `bound(rows)`: the bounded value of a table with two columns, any numbers in it.
    - `epsilon(sensitivity, scale, delta)`: the textbook price, computed apart from the library.
    - `norm`: of the sensitivity, 1 or 2. `spacing`: of integer noise; 0 for real noise.
    """

    name: str
    make: Callable[[float], Mechanism]
    bound: Callable[[Floats], BoundedValue]
    cdf: Cdf
    epsilon: Callable[[float, float, float], float]
    norm: int
    spacing: float = 0.0
    scale: float = 3.0

    def check(self, rng: Source, *, draws: int = 200_000) -> Report:
        """All checks; about a second."""
        mechanism = self.make(self.scale)
        wide = _flat(draws)
        noise: Floats = np.divide(mechanism.release(wide, rng=rng.child("law")), self.scale)
        checks: list[tuple[str, Check]] = [
            ("noise law", lambda: self._law(noise)),
            ("tail", lambda: self._tail(noise)),
            ("independent draws", lambda: self._independent(mechanism, rng)),
            ("low bits tell nothing", lambda: self._grid(mechanism, rng)),
            ("replayed sensitivity", lambda: self._replay(rng)),
            ("price", self._price),
            ("pays before it draws", lambda: self._order(mechanism, rng)),
            ("bad ranges are refused", self._ranges),
        ]
        return run(self.name, checks)

    def _law(self, noise: Floats) -> str | None:
        x = noise
        if self.spacing:  # integer noise: compare at the middle of its cells
            edges: Floats = np.arange(-39.5, 41.0) * (self.spacing / self.scale)
            below = np.searchsorted(np.sort(x), edges) / len(x)
            gap = float(np.max(np.abs(below - self.cdf(edges))))
            limit = math.sqrt(-0.5 * math.log(LEVEL / 2) / len(x))  # Massart's inequality
            return None if gap < limit else f"distribution off by {gap:.4f} (limit {limit:.4f})"
        p = float(stats.kstest(x, self.cdf).pvalue)
        return None if p > LEVEL else f"Kolmogorov-Smirnov p = {p:.2g}"

    def _tail(self, noise: Floats) -> str | None:
        for level in (1e-2, 1e-3, 1e-4):  # with 200,000 draws, 20 are expected beyond the last
            cut = _quantile(self.cdf, level / 2)
            if self.spacing:
                steps = math.floor(cut * self.scale / self.spacing)
                cut = (steps + 0.5) * self.spacing / self.scale
            rate = float(2.0 * (1.0 - self.cdf(np.array([cut]))[0]))
            seen = int((np.abs(noise) > cut).sum())
            p = float(stats.binomtest(seen, len(noise), rate).pvalue)
            if p < LEVEL:
                return f"{seen} of {len(noise)} draws beyond a cut with rate {rate:.2g}"
        return None

    def _independent(self, mechanism: Mechanism, rng: Source) -> str | None:
        value = _flat(20_000)  # a correlation of .035 is seen at `LEVEL`
        own = rng.child("twice")
        first, second = (mechanism.release(value, rng=own) for _ in range(2))
        third = mechanism.release(value, rng=rng.child("other"))
        for other, who in ((second, "the next release"), (third, "another stream")):
            if np.array_equal(first, other):
                return f"the same noise in {who}"
            r = float(np.corrcoef(np.sign(first), np.sign(other))[0, 1])
            if abs(r) * math.sqrt(len(first)) > stats.norm.isf(LEVEL / 2):
                return f"noise correlated with {who}: {r:.3f}"
        half = first.reshape(2, -1)
        if np.array_equal(half[0], half[1]):
            return "the same noise in two halves of a release"
        return None

    def _grid(self, mechanism: Mechanism, rng: Source) -> str | None:
        """The grid of outputs must not depend on the value: (o - 1) + 1 == o, for one."""
        released = mechanism.release(_flat(20_000), rng=rng.child("grid"))
        bad = int(((released - 1.0) + 1.0 != released).sum())
        return None if bad == 0 else f"{bad} of {len(released)} outputs cannot come from 1 + noise"

    def _replay(self, rng: Source) -> str | None:
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
            for rows, other in neighbours(adjacency, rng.child("rows")):
                a, b = self.bound(rows), self.bound(other)
                if np.shape(a.value) != np.shape(b.value):
                    return f"{adjacency.value}: the shape of the value depends on the records"
                both = (a.sensitivity(adjacency), b.sensitivity(adjacency))
                stated = min(s.l1 if self.norm == 1 else s.l2 for s in both)
                if both[0] != both[1]:
                    return f"{adjacency.value}: the sensitivity depends on the records"
                moved = float(np.linalg.norm(np.ravel(a.value - b.value), self.norm))
                if not moved <= stated * (1.0 + 1e-12):
                    return f"{adjacency.value}: a neighbour moves it by {moved:.6g} > {stated:.6g}"
        return None

    def _price(self) -> str | None:
        value = self.bound(np.zeros((4, 2)))
        for scale in (0.5, 1.0, 7.0):  # a power of two, one, and neither
            both = value.sensitivity(Adjacency.ADD_REMOVE)
            sensitivity = both.l1 if self.norm == 1 else both.l2
            for delta in (1e-3, 1e-8):
                stated = self.make(scale).loss(value).epsilon(delta)
                least = self.epsilon(sensitivity, scale, delta)
                # 1e-9: both are computed, and may round
                if not stated >= least * (1.0 - 1e-9):
                    return (
                        f"scale {scale:g}, delta {delta:g}: stated {stated:.6g}, it is {least:.6g}"
                    )
        return None

    def _order(self, mechanism: Mechanism, rng: Source) -> str | None:
        watched = _Ledger()
        mechanism.release(_flat(3), rng=rng.child("paid"), ledger=watched, what="x")
        if watched.charges != 1:
            return f"{watched.charges} charges for one release"
        refusing = _Ledger(refuses=True)
        source = rng.child("unpaid")
        try:
            mechanism.release(_flat(3), rng=source, ledger=refusing, what="x")
        except _Refused:
            pass
        else:
            return "a refused charge did not stop the release"
        untouched = np.array_equal(source.uint64(4), rng.child("unpaid").uint64(4))
        return None if untouched else "noise was drawn before the charge"

    def _ranges(self) -> str | None:
        for bad in (0.0, -1.0, math.nan, math.inf):
            try:
                self.make(bad)
            except PrivetError:
                continue
            return f"scale {bad} was accepted"
        return None


def neighbours(adjacency: Adjacency, rng: Source) -> Iterator[tuple[Floats, Floats]]:
    """Pairs of neighbouring tables: ordinary, empty, repeated and extreme rows."""
    extreme = np.array([[a, b] for a in EXTREMES for b in (0.0, 1.0, 1e30)])
    for n in (0, 1, 2, 50):
        rows = rng.child(n).gaussian((n, 2))
        tables = [rows] if n == 0 else [rows, np.repeat(rows[:1], n, axis=0)]
        for table in tables:
            for new in (*extreme, np.array([0.3, -0.4])):
                longer = np.concatenate([table, new[None]])
                if adjacency is Adjacency.ADD_REMOVE:
                    yield table, longer
                elif n:
                    yield np.concatenate([longer[1:]]), table


class _Refused(PrivetError):
    """The watched ledger's answer."""


class _Ledger:
    def __init__(self, *, refuses: bool = False) -> None:
        self.charges, self.refuses = 0, refuses

    def charge(self, loss: PrivacyLoss, *, what: str, scope: Scope) -> object:
        if self.refuses:
            raise _Refused("no")
        self.charges += 1
        return None


def _flat(n: int) -> BoundedValue:
    """A vector of zeros that no record moves by more than 1."""
    from privet.sensitivity import clip_l1

    return clip_l1(np.zeros((1, n)), 1.0).sum()


def _quantile(cdf: Cdf, upper: float) -> float:
    # no law here reaches as far as 60 scales: e^-60
    return float(optimize.brentq(lambda x: 1.0 - float(cdf(np.array([x]))[0]) - upper, 0.0, 60.0))
