"""Many different pure losses as one part, so that thousands of them are one computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from privet.guarantee import Adjacency
from privet.loss.base import Array, Direction, Part, Quadrature
from privet.loss.pure import (
    ApproximateDP,
    Laplace,
    Pure,
    laplace_log_mgf,
    response_log_mgf,
)

_ROWS = 256
"""Losses at a time, which bounds the memory."""


@final
@dataclass(frozen=True, kw_only=True)
class Many(Part):
    """Pure, Laplace and (epsilon, delta) losses, any number of different ones.

    Exactly their composition; it exists inside an account only, and is never stored.
    """

    members: tuple[Pure | Laplace | ApproximateDP, ...]
    adjacency: Adjacency

    @classmethod
    def of(cls, members: Sequence[Any]) -> Many:
        """All of them, which share one adjacency."""
        return cls(members=tuple(members), adjacency=members[0].adjacency)

    def merge(self, other: Part) -> Part | None:
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

    def singles(self) -> list[tuple[Part, int]]:
        return [single for m in self.members for single in m.singles()]

    @property
    def failure(self) -> float:
        return -math.expm1(math.fsum(math.log1p(-m.failure) for m in self.members))

    def supremum(self, direction: Direction) -> float:
        return math.fsum(m.supremum(direction) for m in self.members)

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        k, errors = self._summed(np.asarray(orders, dtype=float))
        return np.asarray(k + errors)

    def log_mgf_on(
        self, line: Quadrature, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array]:
        return self._summed(line.points)

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        return None

    def intervals(self, direction: Direction, ends: Array) -> None:
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
                errors += np.sum(n * (doubt + 2.0**-44 * np.abs(k)), axis=0)
        return total, errors
