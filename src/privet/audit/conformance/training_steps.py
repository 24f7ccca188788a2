"""What every sampler, clipped sum and noisy step of training must pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privet.accounting import PrivacyLoss, SampledGaussian
from privet.audit.conformance.report import LEVEL, Check, Report, run
from privet.noise import Source

Floats = NDArray[np.float64]


class Samples(Protocol):
    """What the checks need of a sampler."""

    steps: int

    def indices(self, step: int) -> NDArray[np.int64]:
        """The numbers of the records that take part in a step."""

    def expected_batch(self, step: int) -> float:
        """What the sum of a step is divided by."""

    def loss(self, noise_multipliers: Any) -> PrivacyLoss:
        """The price of all steps."""


@final
@dataclass(frozen=True, kw_only=True)
class PoissonSubject:
    """A sampler that says it is Poisson: `make(records, public, rate, steps, rng)`."""

    name: str
    make: Callable[[int, int, float, int, Source], Samples]
    rate: float = 0.07
    records: int = 1000
    steps: int = 400

    def check(self, rng: Source) -> Report:
        """All checks; about half a second."""
        n, q, steps = self.records, self.rate, self.steps
        sampler = self.make(n, n, q, steps, rng.child("a"))
        joined = np.zeros((steps, n))
        for t in range(steps):
            joined[t, sampler.indices(t)] = 1.0
        a = (joined - q) / math.sqrt(q * (1 - q))
        checks: list[tuple[str, Check]] = [
            ("rate", lambda: self._rate(joined)),
            ("batch sizes vary as binomial", lambda: _dispersion(a.sum(1) ** 2 / n, steps)),
            ("turns of a record vary as binomial", lambda: _dispersion(a.sum(0) ** 2 / steps, n)),
            ("steps are independent", lambda: self._lags(a)),
            ("ranks are independent", lambda: self._streams(a, rng)),
            ("the divisor is public", lambda: self._divisor(rng)),
            ("the price is that of what is drawn", lambda: self._price(rng)),
            ("empty batches are steps", lambda: self._empty(rng)),
        ]
        return run(self.name, checks)

    def _rate(self, joined: Floats) -> str | None:
        p = float(stats.binomtest(int(joined.sum()), joined.size, self.rate).pvalue)
        return None if p > LEVEL else f"mean rate {joined.mean():.4f}, stated {self.rate:g}"

    def _lags(self, a: Floats) -> str | None:
        for lag in (1, 2, round(1 / self.rate)):
            z = float(np.sum(a[lag:] * a[:-lag])) / math.sqrt(a[lag:].size)
            if abs(z) > stats.norm.isf(LEVEL / 2):
                return f"correlation of steps {lag} apart: z = {z:.1f}"
        return None

    def _streams(self, a: Floats, rng: Source) -> str | None:
        other = self.make(self.records, self.records, self.rate, self.steps, rng.child("b"))
        b = np.full_like(a, -self.rate / math.sqrt(self.rate * (1 - self.rate)))
        for t in range(self.steps):
            b[t, other.indices(t)] += 1.0 / math.sqrt(self.rate * (1 - self.rate))
        z = float(np.sum(a * b)) / math.sqrt(a.size)
        limit = stats.norm.isf(LEVEL / 2)
        return None if abs(z) < limit else f"two streams draw alike: z = {z:.1f}"

    def _divisor(self, rng: Source) -> str | None:
        for n in (0, 1, 399, 401):  # none, one, and one beside 400 on either side
            one = self.make(n, 400, self.rate, 3, rng.child("n", n))
            for t in range(3):
                one.indices(t)
                if one.expected_batch(t) != self.rate * 400:
                    return f"{n} records for a public 400: divisor {one.expected_batch(t):g}"
        return None

    def _price(self, rng: Source) -> str | None:
        for rate, steps, z in ((self.rate, 50, 1.0), (0.5, 3, 2.0), (0.01, 400, 0.7)):
            stated = self.make(100, 100, rate, steps, rng.child("p")).loss([z] * steps)
            true = SampledGaussian(sample_rate=rate, noise_multiplier=z, steps=steps)
            # for the same steps in another order
            if stated.epsilon(1e-6) < true.epsilon(1e-6) * (1 - 1e-9):
                return (
                    f"q={rate:g} T={steps}: {stated.epsilon(1e-6):.4g} < {true.epsilon(1e-6):.4g}"
                )
        return None

    def _empty(self, rng: Source) -> str | None:
        # .95^2 of the steps are empty: 36 of 40, with a deviation of 1.9; 25 is six of them away
        sampler = self.make(2, 2, 0.05, 40, rng.child("empty"))
        empty = sum(len(sampler.indices(t)) == 0 for t in range(40))
        return None if 25 <= empty <= 40 and sampler.steps == 40 else f"{empty} of 40 are empty"


def _dispersion(squares: Floats, count: int) -> str | None:
    """Squares of standard scores: their sum is chi-squared."""
    total = float(squares.sum())
    p = 2.0 * min(stats.chi2.cdf(total, count), stats.chi2.sf(total, count))
    return None if p > LEVEL else f"index of dispersion {total / count:.3f}"


@final
@dataclass(frozen=True, kw_only=True)
class SumSubject:
    """A clipped sum: `total(rows)` without noise for a table of `width` columns, bound C.

    `slack` is what rounding may add to C, and what the noise must make room for.
    """

    name: str
    total: Callable[[Floats], Floats]
    bound: float
    width: int
    slack: float = 1e-6

    def check(self, rng: Source) -> Report:
        """Run all checks of this subject."""
        # far below the bound to far above it
        rows = rng.child("rows").gaussian((64, self.width)) * np.geomspace(1e-3, 1e3, 64)[:, None]
        checks: list[tuple[str, Check]] = [
            ("one row moves the sum by C at most", lambda: self._each(rows)),
            ("a row does not change what others add", lambda: self._additive(rows)),
            ("bad rows are held too", lambda: self._bad(rows)),
            ("duplicates count each", lambda: self._duplicates(rows)),
            ("many small rows are not lost", lambda: self._small(rng)),
            ("no rows, no sum", self._nothing),
        ]
        return run(self.name, checks)

    def _limit(self) -> float:
        return self.bound * (1.0 + self.slack)

    def _each(self, rows: Floats) -> str | None:
        largest = max(float(np.linalg.norm(self.total(rows[i : i + 1]))) for i in range(len(rows)))
        if largest > self._limit():
            return f"a single row adds {largest:.7g}, bound {self.bound:g}"
        return None if largest > 0.9 * self.bound else f"the largest row adds only {largest:.3g}"

    def _additive(self, rows: Floats) -> str | None:
        whole, parts = self.total(rows), self.total(rows[:20]) + self.total(rows[20:])
        gap = float(np.linalg.norm(whole - parts))
        # a thousandth of a record: float32 sums of 64 are off by less
        return None if gap < 1e-3 * self.bound else f"parts and whole differ by {gap:.3g}"

    def _bad(self, rows: Floats) -> str | None:
        clean = self.total(rows)
        for value in (math.nan, math.inf, -math.inf, 1e30):
            moved = self.total(np.concatenate([rows, np.full((1, self.width), value)])) - clean
            size = float(np.linalg.norm(moved))
            if not size <= self._limit() + 1e-3 * self.bound:
                return f"a row of {value} moves the sum by {size:.3g}"
        return None

    def _duplicates(self, rows: Floats) -> str | None:
        one = self.total(rows[40:41])  # one of those above the bound
        many = self.total(np.repeat(rows[40:41], 300, axis=0))
        gap = float(np.linalg.norm(many - 300 * one)) / (300 * self.bound)
        return None if gap < 1e-3 else f"300 equal rows are off by {gap:.2%}"

    def _small(self, rng: Source) -> str | None:
        n = 3000  # to a sum of so many, half precision could add no more of them
        rows = np.abs(rng.child("small").gaussian((n, self.width))) * 1e-2
        apart = sum(self.total(rows[i : i + 30]) for i in range(0, n, 30))
        gap = float(np.linalg.norm(self.total(rows) - apart) / np.linalg.norm(apart))
        return None if gap < 1e-4 else f"{n} small rows are off by {gap:.2%}"

    def _nothing(self) -> str | None:
        size = float(np.linalg.norm(self.total(np.zeros((0, self.width)))))
        return None if size == 0.0 else f"an empty batch sums to {size:.3g}"


@final
@dataclass(frozen=True, kw_only=True)
class NoiseSubject:
    """Training on records without gradients, so that every update is noise.

    `updates(seed, steps, rate, micro_batch)`: (step, coordinate), each times the divisor and over
    z C, so that it should be standard normal whatever was sampled.
    """

    name: str
    updates: Callable[[int, int, float, int], Floats]

    def check(self, rng: Source) -> Report:
        """All checks; a second or two."""
        checks: list[tuple[str, Check]] = [
            ("law of a step's noise", lambda: self._law(0.5, 4)),
            ("noise in empty batches", lambda: self._law(0.02, 4)),  # most are
            ("noise once a logical step", lambda: self._law(0.9, 1)),  # of many parts
            ("steps have noise of their own", self._fresh),
            ("runs have noise of their own", self._runs),
        ]
        return run(self.name, checks)

    def _law(self, rate: float, micro_batch: int) -> str | None:
        x = self.updates(1, 12, rate, micro_batch)
        if len(x) != 12:
            return f"{len(x)} updates in 12 steps"
        for t, step in enumerate(x):
            p = float(stats.kstest(step, "norm").pvalue)
            if p < LEVEL:
                return f"step {t}: standard deviation {step.std():.3f} of 1"
        return None

    def _fresh(self) -> str | None:
        x = self.updates(1, 12, 0.5, 4)
        if np.any(x.std(axis=1) == 0.0):
            return "a step without noise"
        r = np.asarray(np.corrcoef(x))[np.triu_indices(len(x), 1)]
        limit = stats.norm.isf(LEVEL / 2) / math.sqrt(x.shape[1])
        return (
            None if np.max(np.abs(r)) < limit else f"correlation of steps {np.max(np.abs(r)):.2f}"
        )

    def _runs(self) -> str | None:
        a, b = self.updates(1, 3, 0.5, 4), self.updates(2, 3, 0.5, 4)
        r = abs(float(np.corrcoef(a.ravel(), b.ravel())[0, 1]))
        limit = stats.norm.isf(LEVEL / 2) / math.sqrt(a.size)
        return None if r < limit else f"two seeds correlate: {r:.2f}"
