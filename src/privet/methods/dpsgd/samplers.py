"""Who takes part in a step: samplers that state their own price.

Symbols: q_t the rate of step t, N the public number of records, z_t the noise multiplier (standard
deviation of the noise over the L2 bound of one record's contribution), T the number of steps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.accounting import FixedSizeGaussian, Gaussian, PrivacyLoss, SampledGaussian, compose
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Premise, Unit
from privet.mechanisms import release_transcript
from privet.noise import Source
from privet.noise.grid import ROUND_UP

Indices = NDArray[np.int64]
Numbers = Sequence[float] | NDArray[np.float64]


class Sampler(ABC):
    """Draws the records of every step, and knows what Gaussian releases on them cost.

    The accounting is a method of the object that draws, so the two cannot disagree.
    """

    steps: int
    adjacency: Adjacency
    unit: Unit = Unit.RECORD
    """What is drawn: records, or users with all their records."""
    _rng: Source

    @property
    def stated_adjacency(self) -> Adjacency:
        """The neighbours that a guarantee may speak of."""
        return self.adjacency

    @abstractmethod
    def indices(self, step: int) -> Indices:
        """The records of this step, ascending; a seeded sampler gives the same ones again."""

    @abstractmethod
    def expected_batch(self, step: int) -> float:
        """The public divisor of the step's sum, which never depends on who was drawn."""

    @abstractmethod
    def loss(
        self, noise_multipliers: Numbers, *, start: int = 0, stop: int | None = None
    ) -> PrivacyLoss:
        """The cost of steps start, ..., stop-1, given the noise multiplier of *every* step."""

    @property
    @abstractmethod
    def rates(self) -> NDArray[np.float64]:
        """q_t for every step."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """The most records that a step can take: public, and never exceeded."""

    @property
    def secret(self) -> bool:
        """Whether nobody can know who was drawn; true where everybody always is."""
        return self._rng.secret or bool((self.rates >= 1.0).all())

    @property
    def secrecy(self) -> Premise:
        """Who can know the coins, without which sampling amplifies nothing."""
        return premises.SECRET_COINS if self._rng.secret else premises.SEEDED_COINS

    @property
    @abstractmethod
    def premises(self) -> tuple[Premise, ...]:
        """What the price rests on, and how we know it."""

    def _part(
        self, noise_multipliers: Numbers, start: int, stop: int | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        z = np.asarray(noise_multipliers, dtype=np.float64)
        if z.shape != (self.steps,):
            raise InvalidArgument(
                "noise_multipliers", z.shape, f"one for each of {self.steps} steps"
            )
        end = self.steps if stop is None else stop
        if not 0 <= start <= end <= self.steps:
            raise InvalidArgument("steps", (start, end), f"a range within 0 to {self.steps}")
        return self.rates[start:end], z[start:end]


def is_builtin_sampler(sampler: Sampler) -> bool:
    """Whether a sampler is one of ours, whose draws its price is proved for."""
    return type(sampler) in (PoissonSampler, FixedSizeSampler)


def draw_indices(sampler: Sampler, step: int, *, n: int) -> Indices:
    """The records of a step, once it is checked that none is drawn twice and none is unknown."""
    indices = np.asarray(sampler.indices(step))
    if indices.ndim == 1 and indices.dtype.kind in "iu" and len(indices) <= sampler.capacity:
        indices = indices.astype(np.int64, copy=False)
        if np.all(np.diff(indices, prepend=-1, append=n) > 0):
            return indices
    raise InvalidArgument(
        f"indices of {type(sampler).__name__} at step {step}", f"{indices.dtype} {indices.shape}",
        f"ascending numbers below {n}, each once and at most {sampler.capacity} of them",
    )  # fmt: skip


def poisson_loss(
    rates: NDArray[np.float64],
    noise_multipliers: NDArray[np.float64],
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    *,
    extra_losses: Sequence[PrivacyLoss] = (),
) -> PrivacyLoss:
    """The cost of Gaussian releases on Poisson samples: exact where nothing is sampled (q = 1).

    With q_t = 1 the steps are plain Gaussian releases, whose 1/z_t^2 (4/z_t^2 for replace-one) add
    up to mu^2; all others are `SampledGaussian`.

    >>> round(poisson_loss(np.ones(4), np.full(4, 2.0)).parts[0].mu, 9)
    1.0
    """
    full = rates >= 1.0
    losses = list(extra_losses)
    if np.any(full):
        per_record = 1.0 if adjacency is Adjacency.ADD_REMOVE else 2.0
        mu = per_record * math.sqrt(math.fsum(noise_multipliers[full] ** -2.0)) * ROUND_UP
        losses.append(Gaussian(mu=mu, adjacency=adjacency))
    some = ~full & (rates > 0.0)
    if np.any(some):
        pairs, count = np.unique(
            np.stack([rates[some], noise_multipliers[some]]), axis=1, return_counts=True
        )
        losses.append(
            SampledGaussian(
                sample_rate=pairs[0], noise_multiplier=pairs[1], steps=count, adjacency=adjacency
            )
        )
    return compose(losses, adjacency=adjacency)


_MANY = 2**18
"""From so many records on a coin for each would take a good part of a step."""


@final
class PoissonSampler(Sampler):
    """Every record joins step t by its own coin of probability exactly q_t.

    Batches vary in size and may be empty; an empty batch is a step like any other. The divisor is
    q_t N with the *public* N, whatever the true number of records.

    **Guarantee**: `loss` prices what `indices` draws. Coins are exact (compared with q_t bit by
    bit; for 2^18 records or more by `Source.members`, the same law in fewer words) and come from
    the child stream ("sample", t) of `rng`, so a resumed seeded run draws the same batches, and a
    secure one draws new ones.

    **Assumes** that `n_public` and the rates were not chosen by looking at the records, and under
    add-remove that the data set is one of at most `capacity` records.

    >>> from privet.noise import seeded
    >>> sampler = PoissonSampler(n=1000, rates=[0.1] * 50, rng=seeded(0))
    >>> sampler.expected_batch(0), sampler.steps
    (100.0, 50)
    >>> round(sampler.loss([1.0] * 50).epsilon(1e-5), 2)
    5.15
    """

    def __init__(
        self,
        *,
        n: int,
        rates: Numbers,
        rng: Source,
        n_public: int | None = None,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        unit: Unit = Unit.RECORD,
    ) -> None:
        self.unit = unit
        if not isinstance(n, int | np.integer) or n < 0:
            raise InvalidArgument("n", n, "a whole number of at least 0")
        self.n, self.n_public = n, n
        if n_public is not None:
            self.n_public = _check.count("n_public", n_public)
        self._declared = n_public is not None
        q = np.array(rates, dtype=np.float64)
        if q.ndim != 1 or len(q) == 0:
            raise InvalidArgument("rates", q.shape, "one rate for each step, at least one")
        if (wrong := q[~((q > 0.0) & (q <= 1.0))]).size:
            raise InvalidArgument("rates", float(wrong[0]), "numbers in (0, 1]")
        q.flags.writeable = False
        self._rates, self._rng = q, rng
        self.steps = len(q)
        self.adjacency = adjacency
        if self.n > self.capacity:
            raise InvalidArgument(
                "n_public", self.n_public, "a number of the size of the data set: a quarter or more"
            )

    @property
    def capacity(self) -> int:
        """N itself where it is public, else a power of two that is at least four times it."""
        if self.stated_adjacency is not Adjacency.ADD_REMOVE:
            return max(1, self.n)
        # 2^20 (a million): small data sets share it, and exact sums are fine enough still
        return max(2**20, 1 << (4 * self.n_public - 1).bit_length())

    @property
    def rates(self) -> NDArray[np.float64]:
        return self._rates

    @property
    def stated_adjacency(self) -> Adjacency:
        """Zero-out where the records were counted: their number is then the same, and public."""
        counted = self.adjacency is Adjacency.ADD_REMOVE and not self._declared
        return Adjacency.ZERO_OUT if counted else self.adjacency

    def indices(self, step: int) -> Indices:
        q = float(self._rates[step])
        if q >= 1.0:  # everybody, and no coin
            return np.arange(self.n, dtype=np.int64)
        source = self._rng.child("sample", step)
        if self.n >= _MANY:
            chosen = source.poisson_subset(self.n, q)
        else:
            chosen = np.flatnonzero(source.bernoulli(self.n, q)).astype(np.int64)
        seen = release_transcript.active_transcript.get()
        if seen is not None and seen.included is not None:  # an audit asks what it would have done
            chosen = np.union1d(chosen, [seen.included])
        return chosen

    def expected_batch(self, step: int) -> float:
        return float(self._rates[step]) * self.n_public

    def loss(
        self, noise_multipliers: Numbers, *, start: int = 0, stop: int | None = None
    ) -> PrivacyLoss:
        q, z = self._part(noise_multipliers, start, stop)
        return poisson_loss(q, z, self.adjacency)

    @property
    def premises(self) -> tuple[Premise, ...]:
        size = premises.declared_size if self._declared else premises.counted_size
        if self.unit is Unit.USER:
            size = premises.declared_users if self._declared else premises.counted_users
        sampling = (premises.POISSON_COINS, premises.PUBLIC_DIVISOR, size(self.n_public))
        return sampling if (self._rates >= 1.0).all() else (*sampling, self.secrecy)


@final
class FixedSizeSampler(Sampler):
    """A uniformly random batch of fixed size in every step, drawn afresh without replacement.

    Here the number of records is public, so neighbours differ by replacing one record, and the
    price is that of `FixedSizeGaussian`: never that of Poisson sampling.

    **Guarantee**: `loss` prices what `indices` draws.

    >>> from privet.noise import seeded
    >>> sampler = FixedSizeSampler(n=1000, batch_sizes=[100] * 50, rng=seeded(0))
    >>> len(sampler.indices(0)), sampler.adjacency.value
    (100, 'replace-one')
    """

    adjacency = Adjacency.REPLACE_ONE

    @property
    def capacity(self) -> int:
        return max(self.batch_sizes)

    def __init__(self, *, n: int, batch_sizes: Sequence[int], rng: Source) -> None:
        self.n = _check.count("n", n)
        sizes = [_check.count("batch_sizes", b) for b in batch_sizes]
        if not sizes:
            raise InvalidArgument(
                "batch_sizes", batch_sizes, "one size for each step, at least one"
            )
        if max(sizes) > self.n:
            raise InvalidArgument("batch_sizes", max(sizes), f"at most the {self.n} records")
        self.batch_sizes = tuple(sizes)
        self.steps = len(sizes)
        self._rng = rng

    @property
    def rates(self) -> NDArray[np.float64]:
        return np.array(self.batch_sizes, dtype=np.float64) / self.n

    def indices(self, step: int) -> Indices:
        return self._rng.child("sample", step).sample(self.n, self.batch_sizes[step])

    def expected_batch(self, step: int) -> float:
        return float(self.batch_sizes[step])

    def loss(
        self, noise_multipliers: Numbers, *, start: int = 0, stop: int | None = None
    ) -> PrivacyLoss:
        q, z = self._part(noise_multipliers, start, stop)
        if len(q) == 0:
            return compose([], adjacency=self.adjacency)
        return FixedSizeGaussian(sample_rate=q, noise_multiplier=z)

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (
            premises.UNIFORM_SUBSETS,
            premises.counted_size(self.n),
            self.secrecy,
        )


def shard(indices: Indices, *, n: int, rank: int, world: int) -> Indices:
    """The records of a step that belong to one of several processes: contiguous disjoint shards.

    >>> shard(np.array([0, 3, 5, 9]), n=10, rank=1, world=2).tolist()
    [5, 9]
    """
    low, high = rank * n // world, (rank + 1) * n // world
    first, last = np.searchsorted(indices, [low, high])
    return indices[first:last]


def micro_batches(indices: Indices, size: Callable[[], int]) -> Iterator[tuple[Indices, bool]]:
    """Parts of at most `size()` records, and whether each is the last; an empty batch is one part.

    >>> [(part.tolist(), last) for part, last in micro_batches(np.arange(3), lambda: 2)]
    [([0, 1], False), ([2], True)]
    >>> [(part.tolist(), last) for part, last in micro_batches(np.arange(0), lambda: 2)]
    [([], True)]
    """
    start, last = 0, False
    while not last:
        stop = start + size()
        last = stop >= len(indices)
        yield indices[start:stop], last
        start = stop
