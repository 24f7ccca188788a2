"""The running total of many privacy losses in few parts: equal ones are counted, not listed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self, final

import numpy as np

from privet.accounting.gaussian import Gaussian
from privet.accounting.laplace import Laplace, laplace_log_mgf
from privet.accounting.poisson_sampling import SampledSteps
from privet.accounting.privacy_loss import (
    Array,
    ComposedLoss,
    Direction,
    LossPart,
    PrivacyLoss,
    VerticalLine,
    compose,
)
from privet.accounting.pure_and_approximate_dp import ApproximateDP, Pure, response_log_mgf
from privet.accounting.zcdp import ZCDP
from privet.guarantee import Adjacency

_FEW = 32
"""Up to so many distinct pure losses are listed one by one; more are summed by array operations."""
_ROWS = 256
"""Losses at a time: 256 by 1,500 frequencies are 6 MB of complex numbers."""
_CLOSED: tuple[set[type[LossPart]], ...] = ({Gaussian}, {ZCDP}, set())
"""Kinds whose sum is one part with a formula."""


@final
@dataclass(frozen=True, kw_only=True)
class MixedPureLosses(LossPart):
    """Pure, Laplace and (epsilon, delta) losses, any number of different ones.

    Exactly their composition; it exists inside an account only, and is never stored.
    """

    members: tuple[Pure | Laplace | ApproximateDP, ...]
    adjacency: Adjacency

    @classmethod
    def of(cls, members: Sequence[Any]) -> MixedPureLosses:
        """The composition of losses that share one adjacency."""
        return cls(members=tuple(members), adjacency=members[0].adjacency)

    def merge(self, other: LossPart) -> LossPart | None:
        return None

    def repeat(self, times: int) -> Self:
        return type(self)(
            members=tuple(m.repeat(times) for m in self.members), adjacency=self.adjacency
        )

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def releases(self) -> int:
        return sum(m.times for m in self.members)

    @property
    def distinct(self) -> int:
        return len(self.members)

    def elementary_releases(self) -> list[tuple[LossPart, int]]:
        return [single for m in self.members for single in m.elementary_releases()]

    @property
    def failure(self) -> float:
        return -math.expm1(math.fsum(math.log1p(-m.failure) for m in self.members))

    def supremum(self, direction: Direction) -> float:
        return math.fsum(m.supremum(direction) for m in self.members)

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        k, errors = self._summed(np.asarray(orders, dtype=float))
        return np.asarray(k + errors)

    def log_mgf_on(
        self, line: VerticalLine, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array]:
        return self._summed(line.points)

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        return None

    def histogram(self, direction: Direction, ends: Array) -> None:
        """Not one release, so that there is no law of one."""

    def fields(self) -> dict[str, Any]:
        raise NotImplementedError("an account's own part is never stored")

    def _summed(self, z: Array) -> tuple[Array, Array]:
        """K and its error: the formulas of the members, for many of them at once."""
        total, errors = np.zeros(z.shape, dtype=z.dtype), np.zeros(z.shape)
        for kind in (Pure, Laplace):
            chosen = [m for m in self.members if (type(m) is Laplace) is (kind is Laplace)]
            sizes = np.array([m.epsilon_each for m in chosen])
            times = np.array([float(m.times) for m in chosen])
            for start in range(0, len(chosen), _ROWS):
                e, n = sizes[start : start + _ROWS, None], times[start : start + _ROWS, None]
                k, doubt = (response_log_mgf if kind is Pure else laplace_log_mgf)(z[None, :], e)
                total += np.sum(n * k, axis=0)
                # 2^-44: a sum of 256 rows, each a product, twice over
                errors += np.sum(n * (doubt + 2.0**-44 * np.abs(k)), axis=0)
        return total, errors


@final
class RunningTotal:
    """Counts the losses that were added, so that their total has as few parts as possible."""

    def __init__(self, adjacency: Adjacency) -> None:
        self.adjacency = adjacency
        self.count = 0
        self.releases = 0
        self.kinds: set[type[LossPart]] = set()
        self._suprema = {d: Fraction(0) for d in Direction}
        self._unbounded: set[Direction] = set()
        self._survive = 0.0
        self._merged: dict[type[LossPart], PrivacyLoss] = {}
        self._repeated: dict[LossPart, int] = {}
        self._sampled: dict[type[SampledSteps], list[SampledSteps]] = {}
        self._other: list[LossPart] = []
        self._total: PrivacyLoss | None = None

    def add(self, loss: PrivacyLoss) -> None:
        """Add a loss."""
        self.count += 1
        self._total = None
        for direction in Direction:
            for supremum in loss.suprema(direction):
                if math.isinf(supremum):
                    self._unbounded.add(direction)
                else:
                    self._suprema[direction] += Fraction(supremum)
        for part in loss.parts:
            self._survive += math.log1p(-part.failure)
            if part.free:
                continue
            self.releases += part.releases
            self.kinds.add(type(part))
            if isinstance(part, Gaussian | ZCDP):
                before = self._merged.get(type(part))
                self._merged[type(part)] = part if before is None else compose([before, part])
            elif isinstance(part, Pure | Laplace | ApproximateDP):
                once = replace(part, times=1)
                self._repeated[once] = self._repeated.get(once, 0) + part.times
            elif isinstance(part, SampledSteps):
                self._sampled.setdefault(type(part), []).append(part)
            else:
                self._other.append(part)

    def bound(self, loss: PrivacyLoss | None, delta: float) -> tuple[float, float | None]:
        """epsilon with one more loss, as far as formulas know it.

        With None it is the answer; otherwise it is the largest loss that can occur at all, and the
        second number what is left of `delta` for losses that are bounded.
        """
        parts = () if loss is None else loss.parts
        survive = self._survive + math.fsum(math.log1p(-p.failure) for p in parts)
        # a sum of a million logarithms in any order is good to 1e-10
        failure = -math.expm1(survive) * (1.0 + 1e-10)
        if delta == 0.0 or delta <= failure:
            return (math.inf if failure > 0.0 else self._ceiling(loss)), None
        left = (delta - failure) / (1.0 - failure)
        kinds: set[type[LossPart]] = {*self.kinds, *(type(p) for p in parts)}
        if kinds in _CLOSED:
            return compose([self.total, *parts], adjacency=self.adjacency).epsilon(left), None
        return self._ceiling(loss), left

    def _ceiling(self, loss: PrivacyLoss | None) -> float:
        """The largest loss that can occur at all."""
        found = 0.0
        for direction in Direction:
            more = [] if loss is None else loss.suprema(direction)
            if direction in self._unbounded or math.inf in more:
                return math.inf
            found = max(found, float(self._suprema[direction] + sum(map(Fraction, more))))
        return found

    @property
    def total(self) -> PrivacyLoss:
        """The composition of everything added so far."""
        if self._total is None:
            parts = [part for merged in self._merged.values() for part in merged.parts]
            repeated = [once.repeat(times) for once, times in self._repeated.items()]
            parts += repeated if len(repeated) <= _FEW else [MixedPureLosses.of(repeated)]
            for kind, members in self._sampled.items():
                if len(members) > 1:
                    q, z, n = (np.concatenate([m.groups[i] for m in members]) for i in range(3))
                    joined = members[0]._like(q, z, n)
                    self._sampled[kind] = members = [joined._like(*joined.groups)]
                parts += members
            if self._other:
                parts += compose(self._other).parts
            self._total = (
                parts[0]
                if len(parts) == 1
                else ComposedLoss(members=tuple(parts), adjacency=self.adjacency)
            )
        return self._total
