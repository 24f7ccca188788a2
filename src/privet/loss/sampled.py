"""Losses of releases that see only a random part of the data, any rate and any noise at every step.
Losses of releases that see only a random part of the data, any rate and any noise at every step."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import log_ndtr

from privet import _check
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.loss import binning, moments
from privet.loss.base import Array, Direction, Part, Quadrature
from privet.loss.dots import Dots, from_density
from privet.loss.gaussian import Gaussian, log_deltas
from privet.loss.pure import laplace_profile

Numbers = float | Sequence[float] | Array
_MOST_EXACT = 192
_SQRT_2PI = math.sqrt(2.0 * math.pi)


def _vector(name: str, values: Numbers, length: int) -> Array:
    a = np.array(values, dtype=float)  # a copy: the caller's array may change later
    if a.ndim > 1:
        raise InvalidArgument(name, f"shape {a.shape}", "a number or a one-dimensional sequence")
    if a.ndim == 0:
        a = np.full(length, float(a))
    return a


def _inverse_log_ratio(epsilon: Array, q: float) -> Array:
    """The t with log(1 - q + q e^t) = epsilon; -inf where there is none."""
    with np.errstate(divide="ignore"):
        near = np.log1p(np.maximum(np.expm1(np.minimum(epsilon, 30.0)) / q, -1.0))
    far = epsilon - math.log(q) + np.log1p(-(1.0 - q) * np.exp(-np.maximum(epsilon, 30.0)))
    return np.where(epsilon > 30.0, far, near)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled(Part):
    """Steps of (sample rate, noise multiplier), each occurring `steps` times; numbers or sequences.
    Steps of (sample rate, noise multiplier), each occurring `steps` times; numbers or sequences."""

    sample_rate: Numbers
    noise_multiplier: Numbers
    steps: Any = 1
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        given = {"sample_rate": self.sample_rate, "noise_multiplier": self.noise_multiplier}
        lengths = {n: np.size(v) for n, v in {**given, "steps": self.steps}.items() if np.ndim(v)}
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
                (n >= 1) & (n == np.floor(n)) & (n < 1e15),
                "a whole number of at least 1",
            ),
        ):
            if not np.all(good):
                raise InvalidArgument(name, float(values[int(np.argmin(good))]), expected)
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
        assert isinstance(other, Sampled)
        same = all(np.array_equal(a, b) for a, b in zip(self.groups, other.groups, strict=True))
        return same and self.adjacency is other.adjacency

    def __hash__(self) -> int:
        q, z, n = self.groups
        return hash((type(self), q.tobytes(), z.tobytes(), n.tobytes(), self.adjacency))

    def _like(self, q: Array, z: Array, n: Array) -> Self:
        return type(self)(sample_rate=q, noise_multiplier=z, steps=n, adjacency=self.adjacency)

    def merge(self, other: Part) -> Part | None:
        if type(other) is not type(self) or other.adjacency is not self.adjacency:
            return None
        mine, theirs = self.groups, other.groups
        if len(mine[0]) == 0 or len(theirs[0]) == 0:
            return other if len(mine[0]) == 0 else self
        q, z, n = (np.concatenate([a, b]) for a, b in zip(mine, theirs, strict=True))
        merged = self._like(q, z, n)
        return self._like(*merged.groups)

    def repeat(self, times: int) -> Self:
        return self._like(*self.groups[:2], self.groups[2] * _check.count("times", times))

    @property
    def symmetric(self) -> bool:
        return self.adjacency is Adjacency.REPLACE_ONE

    @property
    def releases(self) -> int:
        return int(np.sum(self.groups[2]))

    @property
    def distinct(self) -> int:
        return len(self.groups[0])

    def singles(self) -> list[tuple[Part, int]]:
        one = np.ones(1)
        return [
            (self._like(q * one, z * one, one), int(n))
            for q, z, n in zip(*self.groups, strict=True)
        ]

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        point = [Quadrature(order=float(t), spacing=1.0, count=1) for t in orders]
        values = [self.log_mgf_on(line, direction, cut) for line in point]
        return np.array([k[0].real + e[0] for k, e in values])

    def log_mgf_on(
        self, line: Quadrature, direction: Direction, cut: float = 0.0
    ) -> tuple[Array, Array]:
        q, z, n = self.groups
        if len(q) == 0:
            return np.zeros(line.count, dtype=complex), np.zeros(line.count)
        if len(q) > _MOST_EXACT:
            cells = self._cells
            return cells.sum_log_mgf(
                self._moments(cells.rate, cells.noise, line, direction, cut), line
            )
        k, e = self._moments(q, z, line, direction, cut)
        return np.einsum("i,ik->k", n, k), np.einsum("i,ik->k", n, e)

    @abstractmethod
    def _moments(
        self, q: Array, z: Array, line: Quadrature, direction: Direction, cut: float
    ) -> tuple[Array, Array]:
        """log E[e^(z L)] and its error bound: a row for each pair, a column for each point."""

    @property
    @abstractmethod
    def _cells(self) -> binning.Cells:
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
            shifted = _inverse_log_ratio(t, q)
            inside = np.isfinite(shifted)
            shifted = np.where(inside, shifted, 0.0)
            low = -np.expm1(np.minimum(t, 0.0))
            return np.where(inside, q * self._unsampled_profile(shifted, z), low)
        # H_alpha(Q | (1-q) Q + q P) = (1 - alpha (1-q)) H_a(Q | P), a = alpha q / (1 - alpha (1-q))
        left = q - (1.0 - q) * np.expm1(np.minimum(t, 700.0))
        inside = left > 0.0
        shifted = np.where(inside, t + math.log(q) - np.log(np.where(inside, left, 1.0)), 0.0)
        return np.where(inside, left * self._unsampled_profile(shifted, z), 0.0)

    def fields(self) -> dict[str, Any]:
        q, z, n = self.groups
        if len(q) == 0:
            return {"sample_rate": 0.0, "noise_multiplier": 1.0, "steps": 1}
        if len(q) == 1:
            return {"sample_rate": float(q[0]), "noise_multiplier": float(z[0]), "steps": int(n[0])}
        return {"sample_rate": q.tolist(), "noise_multiplier": z.tolist(), "steps": n.tolist()}


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledGaussian(Sampled):
    """Gaussian releases, each on a Poisson sample: every record joins step t with probability q_t.

    The noise multiplier is noise / L2 bound of one record's contribution, for both adjacencies. The
    dominating
    pairs are (1-q) N(0) + q N(1) against N(0) in both directions (Zhu, Dong and Wang 2022) for add-
    remove, and
    (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1) for replace-one (proof in
    docs/theory/losses.md).

    **Guarantee**: epsilon and delta are upper bounds, within 0.2% of exact (add-remove; see
    benchmarks/accounting).
    **Assumes**: independent Poisson sampling with the stated rates; a divisor that does not depend
    on the sample.

    >>> loss = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=10_000)
    >>> round(loss.epsilon(1e-6), 2)
    6.91
    """

    def supremum(self, direction: Direction) -> float:
        q, _, n = self.groups
        if direction is Direction.ADD and self.adjacency is Adjacency.ADD_REMOVE:
            with np.errstate(divide="ignore"):
                return float(np.sum(n * -np.log1p(-q))) if len(q) else 0.0
        return math.inf if len(q) else 0.0

    def simplest(self) -> tuple[Part, ...]:
        q, z, n = self.groups
        full = q == 1.0
        if not np.any(full):
            return (self,)
        moved = 1.0 if self.adjacency is Adjacency.ADD_REMOVE else 2.0
        mu = moved * math.sqrt(math.fsum(n[full] / z[full] ** 2)) * (1.0 + 2.0**-50)
        plain = Gaussian(mu=mu, adjacency=self.adjacency)
        rest = ~full
        return (plain, self._like(q[rest], z[rest], n[rest])) if np.any(rest) else (plain,)

    def tail(self, direction: Direction, cut: float) -> float:
        return 0.0 if self._way(direction) is Direction.ADD else self.releases * cut

    def _way(self, direction: Direction) -> Direction | None:
        return None if self.adjacency is Adjacency.REPLACE_ONE else direction

    def _moments(
        self, q: Array, z: Array, line: Quadrature, direction: Direction, cut: float
    ) -> tuple[Array, Array]:
        return moments.sampled_gaussian(q, z, line, self._way(direction), cut)

    def log_mgf(self, orders: Array, direction: Direction, cut: float = 0.0) -> Array:
        q, z, n = self.groups
        if len(q) == 0:
            return np.zeros(len(orders))
        if len(q) > _MOST_EXACT:
            cells = self._rough_cells
            k, e = moments.sampled_gaussian_real(
                cells.rate, cells.noise, orders, self._way(direction), cut
            )
            points = Quadrature(order=0.0, spacing=1.0, count=len(orders))
            total, errors = cells.sum_log_mgf((k, e), points)
            return total.real + errors
        k, e = moments.sampled_gaussian_real(q, z, orders, self._way(direction), cut)
        return np.asarray(np.einsum("i,ik->k", n, k + e))

    @cached_property
    def _cells(self) -> binning.Cells:
        return self._spread(binning.FINE)

    @cached_property
    def _rough_cells(self) -> binning.Cells:
        return self._spread(binning.ROUGH)

    def _spread(self, meshes: tuple[float, ...]) -> binning.Cells:
        round_up = self.adjacency is Adjacency.REPLACE_ONE
        return binning.gaussian_cells(*self.groups, round_up=round_up, meshes=meshes)

    def _unsampled_profile(self, epsilon: Array, z: float) -> Array:
        return np.exp(log_deltas(1.0 / z, epsilon))

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        q, z, n = self.groups
        if self.adjacency is Adjacency.ADD_REMOVE or len(q) == 0 or int(np.sum(n)) != 1:
            return super().profile(epsilon, direction)
        return _replace_one_profile(np.atleast_1d(epsilon), float(q[0]), float(z[0]))

    def dots(self, direction: Direction, *, step: float, first: int, last: int) -> Dots:
        q, z = float(self.groups[0][0]), float(self.groups[1][0])
        way = self._way(direction)
        end = self.profile(np.array([last * step]), direction)
        assert end is not None
        rate = np.array(q)

        def ratio(u: Array) -> Array:
            return moments.log_ratio(rate, u / z - 0.5 / z**2)

        def back(epsilon: Array) -> Array:
            return z * _inverse_log_ratio(epsilon, q) + 0.5 / z

        def with_unit(u: Array) -> Array:
            return (
                (1.0 - q) * np.exp(-0.5 * u**2) + q * np.exp(-0.5 * (u - 1.0 / z) ** 2)
            ) / _SQRT_2PI

        # beyond 38 standard deviations a double has no probability left
        top = 38.0 + (0.0 if way is Direction.ADD else 1.0 / z)
        law: dict[str, Callable[[Array], Array]]
        if way is Direction.REMOVE:
            law = {"loss": ratio, "inverse": back, "density": with_unit}
        elif way is Direction.ADD:
            law = {
                "loss": lambda v: -ratio(-v),
                "inverse": lambda e: -back(-e),
                "density": lambda v: np.exp(-0.5 * v**2) / _SQRT_2PI,
            }
        else:
            law = {
                "loss": lambda u: ratio(u) - ratio(-u),
                "inverse": lambda e: _replace_one_threshold(e, q, z) / z,
                "density": with_unit,
            }
        return from_density(
            **law,
            low=-38.0,
            high=top,
            panel=min(0.25, 0.5 * z),
            beyond=float(end[0]) + 1e-310,
            step=step,
            first=first,
            last=last,
        )


def _replace_one_threshold(epsilon: Array, q: float, z: float) -> Array:
    """The x at which the loss of the replace-one pair is epsilon.

    q e^-c y^2 + (1-q)(1-alpha) y - alpha q e^-c = 0 with y = e^(x/z^2), c = 1/(2 z^2), divided by
    e^(epsilon/2) y; then x = z^2 (epsilon/2 + asinh h), with log h kept apart, as h may overflow.
    """
    size = np.abs(epsilon)
    odds = math.log1p(-q) - math.log(q) if q < 1.0 else -math.inf
    with np.errstate(divide="ignore"):
        log_half = odds + 0.5 / z**2 + size / 2.0 + np.log(-np.expm1(-size)) - math.log(2.0)
    near = np.arcsinh(np.exp(np.minimum(log_half, 20.0)))
    far = np.where(log_half > 20.0, log_half + math.log(2.0), near)
    return np.asarray(np.sign(epsilon) * z**2 * (size / 2.0 + far))


def _replace_one_profile(epsilon: Array, q: float, z: float) -> Array:
    """H of (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1).

    The loss grows with x, so one threshold decides. The difference of two tails cancels, so that
    its rounding error is added.
    """
    sign = np.abs(epsilon)
    x = _replace_one_threshold(sign, q, z)
    rest = math.log1p(-q) if q < 1.0 else -math.inf
    above = np.exp(rest + log_ndtr(-x / z)) + np.exp(math.log(q) + log_ndtr((1.0 - x) / z))
    bulk = np.minimum(sign + rest + log_ndtr(-x / z), 0.0)
    moved = np.minimum(sign + math.log(q) + log_ndtr((-1.0 - x) / z), 0.0)
    other = np.exp(bulk) + np.exp(moved)
    exponents = 1.0 + sign + (x / z) ** 2 + 1.0 / z**2  # whose rounding is relative
    value = np.maximum(above - other, 0.0) + 4.5e-16 * exponents * (above + other)
    # the pair is symmetric: delta(-e) = 1 - e^-e + e^-e delta(e)
    return np.asarray(np.where(epsilon >= 0, value, -np.expm1(-sign) + np.exp(-sign) * value))


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledLaplace(Sampled):
    """Laplace releases, each on a Poisson sample; the noise multiplier is scale / L1 bound. Add-
    remove only.

    >>> SampledLaplace(sample_rate=0.1, noise_multiplier=1.0, steps=50).epsilon(1e-5) < 6.0
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adjacency is not Adjacency.ADD_REMOVE:
            raise InvalidArgument(
                "adjacency", self.adjacency.value, "add-remove for sampled Laplace"
            )

    def supremum(self, direction: Direction) -> float:
        q, z, n = self.groups
        t = 1.0 / z if direction is Direction.REMOVE else -1.0 / z
        return float(np.sum(n * np.abs(moments.log_ratio(q, t)))) if len(q) else 0.0

    def _moments(
        self, q: Array, z: Array, line: Quadrature, direction: Direction, cut: float
    ) -> tuple[Array, Array]:
        return moments.sampled_laplace(q, z, line, direction)

    @cached_property
    def _cells(self) -> binning.Cells:
        return binning.laplace_cells(*self.groups, meshes=binning.FINE)

    def _unsampled_profile(self, epsilon: Array, z: float) -> Array:
        return laplace_profile(epsilon, 1.0 / z)
