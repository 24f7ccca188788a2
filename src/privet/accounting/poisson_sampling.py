"""Losses of releases on a random part of the data: any rate and any noise at every step."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import log_ndtr

from privet import _check
from privet.accounting import moment_generating_functions, schedule_compression
from privet.accounting import privacy_loss_histograms as pld
from privet.accounting.gaussian import Gaussian, log_deltas
from privet.accounting.laplace import laplace_profile
from privet.accounting.privacy_loss import (
    LARGEST_EXPONENT,
    ROUNDOFF,
    Array,
    Direction,
    LossPart,
    VerticalLine,
)
from privet.accounting.privacy_loss_histograms import LossHistogram, replace_one_threshold
from privet.accounting.sampled_likelihood_ratio import inverse_log_ratio, log_ratio
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency

Numbers = float | Sequence[float] | Array
_MOST_EXACT = 192
"""Distinct steps that are summed one by one, at a cost in proportion; more are spread over
nodes of a grid, whose cost does not grow with them."""
_MOST_STEPS = 1e15
"""Numbers of steps below 2^53 are exact in float64, with room for sums of several."""
_ROUND_UP = 1.0 + 2e-15
"""More than the rounding of a logarithm, a product and a sum of few."""
_FOUR_ROUNDINGS = 4.5e-16
"""Of an exponential (two of them), a difference and a product, relative to the largest of these."""


def _vector(name: str, values: Numbers, length: int) -> Array:
    a = np.array(values, dtype=float)  # a copy: the caller's array may change later
    if a.ndim > 1:
        raise InvalidArgument(name, f"shape {a.shape}", "a number or a one-dimensional sequence")
    if a.ndim == 0:
        a = np.full(length, float(a))
    return a


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledSteps(LossPart):
    """Steps of (sample rate, noise multiplier), each `steps` times; numbers or sequences."""

    sample_rate: Numbers
    noise_multiplier: Numbers
    steps: Any = 1
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        settings = {"sample_rate": self.sample_rate, "noise_multiplier": self.noise_multiplier}
        lengths = {
            n: np.size(v) for n, v in {**settings, "steps": self.steps}.items() if np.ndim(v)
        }
        if len(set(lengths.values())) > 1:
            raise InvalidArgument("schedule", lengths, "sequences of equal length")
        length = next(iter(lengths.values()), 1)
        if length == 0:
            raise InvalidArgument("schedule", "no steps", "at least one step")
        q = _vector("sample_rate", self.sample_rate, length)
        z = _vector("noise_multiplier", self.noise_multiplier, length)
        n = _vector("steps", self.steps, length)
        for name, values, good, expected in (
            ("sample_rate", q, (q >= 0) & (q <= 1), "a number in [0, 1]"),
            ("noise_multiplier", z, (z > 0) & np.isfinite(z), "a finite number above 0"),
            (
                "steps",
                n,
                (n >= 1) & (n == np.floor(n)) & (n < _MOST_STEPS),
                f"a whole number of at least 1, below {_MOST_STEPS:g}",
            ),
        ):
            if not np.all(good):
                raise InvalidArgument(name, float(values[int(np.argmin(good))]), expected)
        if float(np.sum(n)) >= _MOST_STEPS:
            raise InvalidArgument("steps", float(np.sum(n)), f"fewer than {_MOST_STEPS:g} in all")
        whole = n.astype(np.int64)
        for name, values in (("sample_rate", q), ("noise_multiplier", z), ("steps", whole)):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @cached_property
    def groups(self) -> tuple[Array, Array, Array]:
        """The distinct (rate, noise multiplier) with a rate above 0, and how often each occurs."""
        q, z = np.asarray(self.sample_rate), np.asarray(self.noise_multiplier)
        live = np.nonzero(q > 0)[0]
        live = live[np.lexsort((z[live], q[live]))]
        q, z, n = q[live], z[live], np.asarray(self.steps)[live]
        new = np.ones(len(q), dtype=bool)
        new[1:] = (q[1:] != q[:-1]) | (z[1:] != z[:-1])
        groups = (q[new], z[new], np.add.reduceat(n, np.nonzero(new)[0]) if len(n) else n)
        for values in groups:
            values.setflags(write=False)
        return groups

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, SampledSteps)
        same = all(np.array_equal(a, b) for a, b in zip(self.groups, other.groups, strict=True))
        return same and self.adjacency is other.adjacency

    def __hash__(self) -> int:
        q, z, n = self.groups
        return hash((type(self), q.tobytes(), z.tobytes(), n.tobytes(), self.adjacency))

    def _like(self, q: Array, z: Array, n: Array) -> Self:
        return type(self)(sample_rate=q, noise_multiplier=z, steps=n, adjacency=self.adjacency)

    def merge(self, other: LossPart) -> LossPart | None:
        if type(other) is not type(self) or other.adjacency is not self.adjacency:
            return None
        mine, theirs = self.groups, other.groups
        if len(mine[0]) == 0 or len(theirs[0]) == 0:
            return other if len(mine[0]) == 0 else self
        q, z, n = (np.concatenate([a, b]) for a, b in zip(mine, theirs, strict=True))
        merged = self._like(q, z, n)
        return self._like(*merged.groups)

    def repeat(self, times: int) -> Self:
        q, z, n = self.groups
        counts = [float(int(k) * _check.count("times", times)) for k in n]  # no wrapping round
        return self._like(q, z, np.array(counts))

    @property
    def symmetric(self) -> bool:
        return self.adjacency is Adjacency.REPLACE_ONE

    @property
    def releases(self) -> int:
        return int(np.sum(self.groups[2]))

    @property
    def distinct(self) -> int:
        return len(self.groups[0])

    def elementary_releases(self) -> list[tuple[LossPart, int]]:
        one = np.ones(1)
        return [
            (self._like(q * one, z * one, one), int(n))
            for q, z, n in zip(*self.groups, strict=True)
        ]

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        point = [VerticalLine(order=float(t), spacing=1.0, count=1) for t in orders]
        values = [self.log_mgf_on(line, direction, cut) for line in point]
        return np.array([math.inf if v is None else v[0][0].real + v[1][0] for v in values])

    def log_mgf_on(
        self, line: VerticalLine, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array] | None:
        q, z, n = self.groups
        if len(q) == 0:
            return np.zeros(line.count, dtype=complex), np.zeros(line.count)
        if len(q) > _MOST_EXACT:
            cells = self._cells
            nodes = self._moments(cells.rate, cells.noise, line, direction, cut)
            return None if nodes is None else cells.sum_log_mgf(nodes, line)
        answer = self._moments(q, z, line, direction, cut)
        if answer is None:
            return None
        k, e = answer
        # a product and a sum for each term, complex: four roundings at most
        summing = 4.0 * ROUNDOFF * (1.0 + len(q)) * np.einsum("i,ik->k", n, np.abs(k))
        return np.einsum("i,ik->k", n, k), np.einsum("i,ik->k", n, e) + summing

    @abstractmethod
    def _moments(
        self, q: Array, z: Array, line: VerticalLine, direction: Direction, cut: float
    ) -> tuple[Array, Array] | None:
        """log E[e^(z L)] and its error bound: a row for each pair, a column for each point.

        None if that would take too long.
        """

    @property
    @abstractmethod
    def _cells(self) -> schedule_compression.StepCells:
        """The steps spread over the nodes of a grid that dominates them."""

    @abstractmethod
    def _unsampled_profile(self, epsilon: Array, z: float) -> Array:
        """delta of P against Q, the release whose batch contains the unit for certain."""

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        q_all, z_all, n = self.groups
        t = np.atleast_1d(np.asarray(epsilon, dtype=float))
        if len(q_all) == 0:
            return np.asarray(np.maximum(-np.expm1(t), 0.0))
        if int(np.sum(n)) != 1:
            return None
        q, z = float(q_all[0]), float(z_all[0])
        if direction is Direction.REMOVE:
            # H_alpha((1-q) Q + q P | Q) = q H_a(P | Q), a = 1 + (alpha - 1)/q, while a > 0
            shifted = inverse_log_ratio(t, q)
            inside = np.isfinite(shifted)
            shifted = np.where(inside, shifted, 0.0)
            low = -np.expm1(np.minimum(t, 0.0))
            return np.where(inside, q * self._unsampled_profile(shifted, z), low)
        # H_alpha(Q | (1-q) Q + q P) = (1 - alpha (1-q)) H_a(Q | P), a = alpha q / (1 - alpha (1-q))
        left = q - (1.0 - q) * np.expm1(np.minimum(t, LARGEST_EXPONENT)) + _FOUR_ROUNDINGS * q
        inside = left > 0.0
        shifted = np.where(inside, t + math.log(q) - np.log(np.where(inside, left, 1.0)), 0.0)
        return np.where(inside, left * self._unsampled_profile(shifted, z), 0.0)

    def histogram(self, direction: Direction, ends: Array) -> LossHistogram | None:
        q, z, n = self.groups
        if len(q) != 1 or n[0] != 1:
            return None
        return self._one_step_histogram(float(q[0]), float(z[0]), direction, ends)

    def lower_bound(self) -> Self:
        """The same steps; many different ones are moved to at most `_MOST_EXACT` nodes of a grid,
        each to one with no less noise and no larger rate."""
        q, z, n = self.groups
        if len(q) <= _MOST_EXACT:
            return self
        return self._like(*schedule_compression.coarsen(q, z, n, _MOST_EXACT))

    @abstractmethod
    def _one_step_histogram(
        self, q: float, z: float, direction: Direction, ends: Array
    ) -> LossHistogram:
        """`histogram` of one step."""

    def fields(self) -> dict[str, Any]:
        q, z, n = self.groups
        if len(q) == 0:
            return {"sample_rate": 0.0, "noise_multiplier": 1.0, "steps": 1}
        if len(q) == 1:
            return {"sample_rate": float(q[0]), "noise_multiplier": float(z[0]), "steps": int(n[0])}
        return {"sample_rate": q.tolist(), "noise_multiplier": z.tolist(), "steps": n.tolist()}


def _replace_one_profile(epsilon: Array, q: float, z: float) -> Array:
    """H of (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1).

    The loss grows with x, so one threshold decides. The difference of two tails cancels, so that
    its rounding error is added.
    """
    sign = np.abs(epsilon)
    x = replace_one_threshold(sign, q, z)
    rest = math.log1p(-q) if q < 1.0 else -math.inf
    above = np.exp(rest + log_ndtr(-x / z)) + np.exp(math.log(q) + log_ndtr((1.0 - x) / z))
    bulk = np.minimum(sign + rest + log_ndtr(-x / z), 0.0)
    moved = np.minimum(sign + math.log(q) + log_ndtr((-1.0 - x) / z), 0.0)
    other = np.exp(bulk) + np.exp(moved)
    exponents = 1.0 + sign + (x / z) ** 2 + 1.0 / z**2  # whose rounding is relative
    value = np.maximum(above - other, 0.0) + _FOUR_ROUNDINGS * exponents * (above + other)
    # the pair is symmetric: delta(-e) = 1 - e^-e + e^-e delta(e)
    return np.asarray(np.where(epsilon >= 0, value, -np.expm1(-sign) + np.exp(-sign) * value))


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledGaussian(SampledSteps):
    """Gaussian releases, each on a Poisson sample: every record joins step t with probability q_t.

    The noise multiplier is noise / L2 bound of one record's contribution, for both adjacencies. The
    dominating pairs are (1-q) N(0) + q N(1) against N(0) in both directions (Zhu, Dong and Wang
    2022) for add-remove, and (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1) for replace-one
    (proof in docs/theory/losses.md).

    **Guarantee**: epsilon and delta are upper bounds, and `epsilon_bounds` says how close they are.
    **Assumes**: independent Poisson sampling with the stated rates; a divisor that does not depend
    on the sample.

    >>> loss = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=10_000)
    >>> round(loss.epsilon(1e-6), 2)
    6.91
    """

    def supremum(self, direction: Direction) -> float:
        q, _, n = self.groups
        if self._way(direction) is Direction.ADD:
            with np.errstate(divide="ignore"):
                return float(np.sum(n * -np.log1p(-q))) * _ROUND_UP if len(q) else 0.0
        return math.inf if len(q) else 0.0

    def simplify(self) -> tuple[LossPart, ...]:
        q, z, n = self.groups
        full = q == 1.0
        if not np.any(full):
            return (self,)
        moved = 2.0 if self.adjacency is Adjacency.REPLACE_ONE else 1.0
        # up by eight roundings: quotients, squares, a sum and a root have fewer
        mu = moved * math.sqrt(math.fsum(n[full] / z[full] ** 2)) * (1.0 + 2.0**-50)
        plain = Gaussian(mu=mu, adjacency=self.adjacency)
        rest = ~full
        return (plain, self._like(q[rest], z[rest], n[rest])) if np.any(rest) else (plain,)

    def tail(self, direction: Direction, cut: float) -> float:
        return 0.0 if self._way(direction) is Direction.ADD else self.releases * cut

    def _way(self, direction: Direction) -> Direction | None:
        return None if self.adjacency is Adjacency.REPLACE_ONE else direction

    def _moments(
        self, q: Array, z: Array, line: VerticalLine, direction: Direction, cut: float
    ) -> tuple[Array, Array] | None:
        return moment_generating_functions.sampled_gaussian(q, z, line, self._way(direction), cut)

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        q, z, n = self.groups
        if len(q) == 0:
            return np.zeros(len(orders))
        if len(q) > _MOST_EXACT:
            cells = self._rough_cells
            k, e = moment_generating_functions.sampled_gaussian_real(
                cells.rate, cells.noise, orders, self._way(direction), cut
            )
            points = VerticalLine(order=0.0, spacing=1.0, count=len(orders))
            total, errors = cells.sum_log_mgf((k, e), points)
            return total.real + errors
        k, e = moment_generating_functions.sampled_gaussian_real(
            q, z, orders, self._way(direction), cut
        )
        return np.asarray(np.einsum("i,ik->k", n, k + e))

    @cached_property
    def _cells(self) -> schedule_compression.StepCells:
        return self._spread(schedule_compression.FINE)

    @cached_property
    def _rough_cells(self) -> schedule_compression.StepCells:
        return self._spread(schedule_compression.ROUGH)

    def _spread(self, meshes: tuple[float, ...]) -> schedule_compression.StepCells:
        round_up = self.adjacency is Adjacency.REPLACE_ONE
        return schedule_compression.gaussian_cells(*self.groups, round_up=round_up, meshes=meshes)

    def _unsampled_profile(self, epsilon: Array, z: float) -> Array:
        return np.exp(log_deltas(1.0 / z, epsilon))

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        q, z, n = self.groups
        if self._way(direction) is not None or len(q) == 0 or int(np.sum(n)) != 1:
            return super().profile(epsilon, direction)
        return _replace_one_profile(np.atleast_1d(epsilon), float(q[0]), float(z[0]))

    def _one_step_histogram(
        self, q: float, z: float, direction: Direction, ends: Array
    ) -> LossHistogram:
        return pld.sampled_gaussian_histogram(q, z, self._way(direction), ends)


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledLaplace(SampledSteps):
    """Laplace releases, each on a Poisson sample (add-remove only).

    The noise multiplier is scale / L1 bound.

    >>> SampledLaplace(sample_rate=0.1, noise_multiplier=1.0, steps=50).epsilon(1e-5) < 6.0
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adjacency.of_losses is not Adjacency.ADD_REMOVE:
            raise InvalidArgument(
                "adjacency", self.adjacency.value, "add-remove for sampled Laplace"
            )

    def supremum(self, direction: Direction) -> float:
        q, z, n = self.groups
        t = 1.0 / z if direction is Direction.REMOVE else -1.0 / z
        return (
            float(np.sum(n * np.abs(log_ratio(q, t)) * np.where(q < 1.0, _ROUND_UP, 1.0)))
            if len(q)
            else 0.0
        )

    def _moments(
        self, q: Array, z: Array, line: VerticalLine, direction: Direction, cut: float
    ) -> tuple[Array, Array] | None:
        return moment_generating_functions.sampled_laplace(q, z, line, direction)

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        q, z, n = self.groups
        if 0 < len(q) <= _MOST_EXACT:
            each = moment_generating_functions.sampled_laplace_real(q, z, orders, direction)
            # a sum of at most 192 terms rounds by 192 * 2^-53 = 2e-14
            return np.asarray(np.einsum("i,ik->k", n, each) * (1.0 + 1e-13))
        return super().log_mgf(orders, direction, cut)

    @cached_property
    def _cells(self) -> schedule_compression.StepCells:
        return schedule_compression.laplace_cells(*self.groups, meshes=schedule_compression.FINE)

    def _unsampled_profile(self, epsilon: Array, z: float) -> Array:
        return laplace_profile(epsilon, 1.0 / z)

    def _one_step_histogram(
        self, q: float, z: float, direction: Direction, ends: Array
    ) -> LossHistogram:
        return pld.laplace_histogram(ends, q, 1.0 / z, 1 if direction is Direction.REMOVE else -1)
