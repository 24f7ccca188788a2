"""Aggregation: the mean of clipped codes plus Gaussian noise, calibrated exactly, in streams."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet import loss as losses
from privet.bounds import Bounded, Sensitivity
from privet.errors import Incomparable, InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Premise, Standing, Unit
from privet.ledger import Entry, Ledger, Scope
from privet.loss.renyi import concentrated_noise
from privet.mechanisms import Gaussian
from privet.methods.pate.answers import BLOCK, AnswerSource, RefusedAnswers
from privet.noise import Source

REPLACE_ONE = Adjacency.REPLACE_ONE
_UP = 1.0 + 2.0**-50
BELOW = 1.0 - 2.0**-40
"""Budgets are aimed at from so far below, so that no rounding carries the stated epsilon over."""
OF_SHARDS = (premises.PUBLIC_QUESTIONS, premises.DISJOINT_SHARDS)
"""What every promise per teacher shard rests on."""


def unit_noise(*, teachers: int, queries: int, epsilon: float, delta: float) -> float:
    """The noise on the mean of codes of length at most 1: sigma = 2 sqrt(N) / (K mu(eps, delta)).

    Times the radius it is the noise for any other. N answers together are one Gaussian release of
    a vector that one shard can move by 2 sqrt(N)/K, so this is exact: less would not be enough.

    >>> round(unit_noise(teachers=8, queries=80, epsilon=8.0, delta=1e-3), 4)
    1.0733
    """
    k, n = _check.count("teachers", teachers), _check.count("queries", queries)
    epsilon, delta = _check.positive("epsilon", epsilon), _check.open_unit("delta", delta)
    return 2.0 * math.sqrt(n) / (k * losses.gaussian_mu(epsilon, delta))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyAnswers:
    """What came out of an aggregation: public."""

    codes: NDArray[np.float64] = field(repr=False)
    noise: float
    """The standard deviation of the noise in each number."""
    guarantee: Guarantee
    entry: Entry | None


@final
@dataclass(frozen=True, kw_only=True)
class Aggregator:
    """The mean over K teachers of codes in a ball of radius C, with noise N(0, sigma^2).

    One shard can move one teacher's codes by 2 C each, so N of them as one vector by 2 C sqrt(N),
    and their sum over teachers likewise. Noise of scale S = K sigma on the sum costs a Gaussian
    loss mu = 2 C sqrt(N) / S, exactly; mu^2 adds up over rounds, so a budget for N answers may be
    asked for in parts, whatever the answers were, until the ledger's cap is reached.

    Sums are made of whole numbers, noise is added on a grid (`privet.mechanisms.Gaussian`), block
    by block: neither the number of teachers nor the size of a target needs memory.

    **Guarantee** `guarantee(queries, ...)`, replace-one, per teacher shard: all records of one
    teacher may change. A record is in one shard, so records are protected too.

    **Assumes** disjoint shards, a public reducer, public inputs, a secret noise source.

    >>> aggregator = Aggregator.for_budget(teachers=8, queries=80, epsilon=8.0, delta=1e-3)
    >>> round(aggregator.noise, 4)
    1.0733
    >>> paper = Aggregator.published(teachers=8, queries=80, epsilon=8.0, delta=1e-3)
    >>> round(paper.noise, 4), round(paper.guarantee(80, delta=1e-3).epsilon, 2)
    (1.2826, 6.34)

    Fay, Sjoelund and Oechtering (2020), algorithms 1 and 2; Balle and Wang (2018), theorem 8.
    """

    teachers: int
    radius: float
    mechanism: Gaussian
    """The noise on the *sum*."""

    def __post_init__(self) -> None:
        _check.count("teachers", self.teachers)
        _check.positive("radius", self.radius)

    @classmethod
    def for_budget(
        cls,
        *,
        teachers: int,
        queries: int,
        epsilon: float,
        delta: float,
        radius: float = 1.0,
        dimension: int = 1,
    ) -> Self:
        """The least noise with which `queries` answers are (epsilon, delta)-private in all."""
        mechanism = Gaussian.for_budget(
            moved(radius, queries),
            epsilon=_check.positive("epsilon", epsilon) * BELOW,
            delta=delta,
            adjacency=REPLACE_ONE,
            dimension=_check.count("queries", queries) * _check.count("dimension", dimension),
        )
        return cls(teachers=teachers, radius=radius, mechanism=mechanism)

    def heard(self, dimension: int) -> float:
        """How much of the squared length of a code the best linear estimate can know, at most.

        A mean code is at most C long, its noise about sigma sqrt(l): r^2 / (1 + r^2) for the ratio.

        >>> eight = Aggregator.for_budget(teachers=8, queries=50, epsilon=8.0, delta=1e-3)
        >>> three = Aggregator.for_budget(teachers=3, queries=30, epsilon=8.0, delta=1e-5)
        >>> round(eight.heard(4), 2), round(three.heard(3), 2)
        (0.26, 0.06)
        """
        ratio = (self.radius / self.noise) ** 2 / _check.count("dimension", dimension)
        return ratio / (1.0 + ratio)

    @classmethod
    def published(
        cls, *, teachers: int, queries: int, epsilon: float, delta: float, radius: float = 1.0
    ) -> Self:
        """The paper's noise, from Renyi composition: sound, with more noise than is needed.

        sigma = C sqrt(2 N) (sqrt(log 1/delta + eps) + sqrt(log 1/delta)) / (K eps).
        """
        sigma = concentrated_noise(
            sensitivity=2.0
            * _check.positive("radius", radius)
            / _check.count("teachers", teachers),
            releases=queries,
            epsilon=epsilon,
            delta=delta,
        )
        return cls(teachers=teachers, radius=radius, mechanism=Gaussian(scale=teachers * sigma))

    @property
    def noise(self) -> float:
        """sigma, the standard deviation of the noise on the mean."""
        return self.mechanism.scale / self.teachers

    def loss(self, queries: int, *, dimension: int = 1) -> losses.Gaussian:
        """What so many answers cost."""
        return self.mechanism.loss(
            moved(self.radius, queries),
            adjacency=REPLACE_ONE,
            dimension=_check.count("queries", queries) * _check.count("dimension", dimension),
        )

    def guarantee(
        self, queries: int, *, delta: float, dimension: int = 1, rng: Source | None = None
    ) -> Guarantee:
        """What so many answers promise with noise of `rng`; a secret one is planned for."""
        loss = self.loss(queries, dimension=dimension)
        theorem = f"{self.mechanism.theorem}, {queries} answers as one"
        return shard_promise(loss, delta, theorem, (self.clipped, self.mechanism.law, key_of(rng)))

    @property
    def clipped(self) -> Premise:
        """What bounds a teacher's answers."""
        return premises.bound(f"each code clipped to L2 norm {self.radius:g}")

    def release(
        self,
        answers: Sequence[AnswerSource],
        *,
        rng: Source,
        delta: float,
        ledger: Ledger | None = None,
        reducer: str | None = None,
        number: int = 0,
        what: str = "answers of teachers",
    ) -> NoisyAnswers:
        """The noisy mean of one round of answers, charged before anything is drawn.

        `reducer`: the name of the reducer that all must have used. `number`: of the round; a
        seeded `rng` gives every round noise of its own by it.
        """
        entry = self.charge(answers, ledger=ledger, reducer=reducer, what=what, rng=rng)
        h = answers[0].header
        flat = np.empty(h.size)
        for start, part in self.blocks(answers, rng=rng, number=number):
            flat[start : start + len(part)] = part
        return NoisyAnswers(
            codes=flat.reshape(h.rows, h.dimension),
            noise=self.noise,
            guarantee=self.guarantee(h.rows, delta=delta, dimension=h.dimension, rng=rng),
            entry=entry,
        )

    def charge(
        self,
        answers: Sequence[AnswerSource],
        *,
        ledger: Ledger | None,
        reducer: str | None = None,
        what: str = "answers of teachers",
        rng: Source | None = None,
    ) -> Entry | None:
        """Check all answers, then write the cost down; nothing is drawn yet."""
        self.check(answers, reducer=reducer)
        h = answers[0].header
        return charge_shards(ledger, self.loss(h.rows, dimension=h.dimension), what=what, rng=rng)

    def check(self, answers: Sequence[AnswerSource], *, reducer: str | None = None) -> None:
        """Raise `RefusedAnswers` by name unless these are K sets of answers that fit together."""
        if len(answers) != self.teachers:
            sites = ", ".join(source.header.site for source in answers)
            raise InvalidArgument(
                "answers",
                f"{len(answers)} ({sites})",
                f"those of all {self.teachers} teachers",
                "leaving one out changes the noise on the mean: plan with the number that answered",
            )
        fits_together(answers, radius=self.radius, reducer=reducer)
        for source in answers:
            if source.header.share != 0.0:
                raise RefusedAnswers(
                    source.label, "it carries noise of its own", "use `DistributedAggregator`"
                )
            source.refuse_if_damaged()
            source.refuse_if_too_long()

    def blocks(
        self, answers: Sequence[AnswerSource], *, rng: Source, number: int = 0
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """The noisy mean, block by block, with where each block starts.

        **Guarantee** none by itself: whoever calls this has called `charge`.
        """
        h = answers[0].header
        widest = Sensitivity(l1=math.inf, l2=moved(self.radius, h.rows))
        for start in range(0, h.size, BLOCK):
            stop = min(start + BLOCK, h.size)
            total = np.zeros(stop - start, dtype=np.int64)
            for source in answers:
                total += source.flat(start, stop)
            bounded = Bounded(
                value=total.astype(np.float64) * h.spacing,
                add_remove=widest,
                replace_one=widest,
                premise=self.clipped,
                spacing=h.spacing,
            )
            noisy = self.mechanism.release(
                bounded, rng=rng.child("pate", number, start // BLOCK), adjacency=REPLACE_ONE
            )
            yield start, noisy / self.teachers


def fits_together(
    answers: Sequence[AnswerSource], *, radius: float, reducer: str | None = None
) -> None:
    """Raise `RefusedAnswers` by name unless all answer the same queries in the same way."""
    first, seen = answers[0].header, dict[str, str]()
    for source in answers:
        h = source.header
        if h.site in seen:
            problem = f"site {h.site!r} answered twice, also in {seen[h.site]}"
            raise RefusedAnswers(source.label, problem, "keep one file a site")
        seen[h.site] = source.label
        if h.reducer != (first.reducer if reducer is None else reducer):
            raise RefusedAnswers(source.label, "another reducer made its codes")
        if h.queries != first.queries:
            raise RefusedAnswers(source.label, "it answers other public inputs")
        if (h.rows, h.dimension) != (first.rows, first.dimension):
            problem = f"{h.rows} codes of {h.dimension}, not {first.rows} of {first.dimension}"
            raise RefusedAnswers(source.label, problem)
        if h.radius != radius or h.spacing != first.spacing:
            problem = f"clipped to {h.radius:g}, the aggregation expects {radius:g}"
            raise RefusedAnswers(source.label, problem)


def claim(*, epsilon: float, delta: float) -> Guarantee:
    """The paper's own statement for its own noise."""
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        adjacency=REPLACE_ONE,
        unit=Unit.SHARD,
        standing=Standing.CLAIMED,
        theorem="PATE for high-dimensional targets (Fay, Sjoelund and Oechtering 2020), prop. 1, 2",
    )


def shard_ledger(*, epsilon: float, delta: float) -> Ledger:
    """A ledger in memory of the kind that PATE charges: replace-one, per teacher shard."""
    return Ledger.in_memory(
        cap_epsilon=epsilon, cap_delta=delta, adjacency=REPLACE_ONE, unit=Unit.SHARD
    )


def key_of(rng: Source | None) -> Premise:
    """Who knows the noise of a source; a plan without one is for a secret key."""
    return premises.SECRET_KEY if rng is None else rng.premise


def shard_promise(
    loss: losses.PrivacyLoss, delta: float, theorem: str, rests_on: tuple[Premise, ...]
) -> Guarantee:
    """What a loss promises per teacher shard, on these premises and those of all of PATE."""
    stated = loss.guarantee(delta, theorem=theorem, unit=Unit.SHARD)
    return replace(stated, premises=(*rests_on, *OF_SHARDS))


def charge_shards(
    ledger: Ledger | None,
    loss: losses.PrivacyLoss,
    *,
    what: str,
    rng: Source | None = None,
    token: str | None = None,
) -> Entry | None:
    """Write the cost down; None where nobody keeps an account.

    A ledger that speaks of other neighbours or units is refused.
    """
    if ledger is None:
        return None
    if ledger.adjacency is not REPLACE_ONE:
        raise Incomparable(ledger.adjacency.value, REPLACE_ONE.value, "adjacency of the ledger")
    if ledger.unit is not Unit.SHARD:
        raise Incomparable(ledger.unit.value, Unit.SHARD.value, "unit of the ledger")
    scope = Scope(unit=Unit.SHARD, secret=None if rng is None else rng.secret)
    return ledger.charge(loss, what=what, scope=scope, token=token)


def moved(radius: float, queries: int) -> float:
    """How far one shard can move the codes of a teacher: 2 C sqrt(N), rounded up."""
    n = _check.count("queries", queries)
    return 2.0 * _check.positive("radius", radius) * math.sqrt(n) * _UP
