"""Aggregation by means: the mean of clipped codes plus Gaussian noise, calibrated exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet import accounting as losses
from privet.accounting.calibration import BUDGET_MARGIN
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Premise
from privet.ledger import Entry, Ledger
from privet.mechanisms import GaussianMechanism
from privet.methods.pate.answer_checks import check_compatible, inspect_answers
from privet.methods.pate.answer_files import (
    AnswerSource,
    CheckedAnswers,
    RefusedAnswers,
)
from privet.methods.pate.published_noise import concentrated_noise
from privet.methods.pate.shard_charges import (
    REPLACE_ONE,
    charge_shards,
    noise_premise,
    shard_guarantee,
)
from privet.noise import Source
from privet.noise.grid import ROUND_UP
from privet.sensitivity import BoundedValue, Sensitivity


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
@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyLabels:
    """What came out of an aggregation, for a student to learn from: public."""

    labels: NDArray[Any] = field(repr=False)
    """Soft targets, or class numbers, of the public inputs; -1 where no answer was given."""
    answered: Any = field(default_factory=lambda: slice(None), repr=False)
    """Which of the public inputs have an answer."""
    codes: NDArray[np.float64] | None = field(default=None, repr=False)
    """The noisy codes that soft targets were decoded from."""
    noise: float = 0.0
    """The standard deviation of the noise in each number of a code, or on each count of votes."""
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

    Sums are made of whole numbers, noise is added on a grid
    (`privet.mechanisms.GaussianMechanism`), block by block: neither the number of teachers nor the
    size of a target needs memory.

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
    mechanism: GaussianMechanism
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
        mechanism = GaussianMechanism.for_budget(
            sum_sensitivity(radius, queries),
            epsilon=_check.positive("epsilon", epsilon) * BUDGET_MARGIN,
            delta=delta,
            adjacency=REPLACE_ONE,
            dimension=_check.count("queries", queries) * _check.count("dimension", dimension),
        )
        return cls(teachers=teachers, radius=radius, mechanism=mechanism)

    def signal_share(self, dimension: int) -> float:
        """The share of a code's squared length that the best linear estimate can know, at most.

        A mean code is at most C long, its noise about sigma sqrt(l): r^2 / (1 + r^2) for the ratio.

        >>> eight = Aggregator.for_budget(teachers=8, queries=50, epsilon=8.0, delta=1e-3)
        >>> three = Aggregator.for_budget(teachers=3, queries=30, epsilon=8.0, delta=1e-5)
        >>> round(eight.signal_share(4), 2), round(three.signal_share(3), 2)
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
        return cls(
            teachers=teachers, radius=radius, mechanism=GaussianMechanism(scale=teachers * sigma)
        )

    @property
    def noise(self) -> float:
        """sigma, the standard deviation of the noise on the mean."""
        return self.mechanism.scale / self.teachers

    def loss(self, queries: int, *, dimension: int = 1) -> losses.Gaussian:
        """What so many answers cost."""
        return self.mechanism.loss(
            sum_sensitivity(self.radius, queries),
            adjacency=REPLACE_ONE,
            dimension=_check.count("queries", queries) * _check.count("dimension", dimension),
        )

    def guarantee(
        self, queries: int, *, delta: float, dimension: int = 1, rng: Source | None = None
    ) -> Guarantee:
        """What so many answers promise with noise of `rng`; a secret one is planned for."""
        loss = self.loss(queries, dimension=dimension)
        theorem = f"{self.mechanism.theorem}, {queries} answers as one"
        return shard_guarantee(
            loss, delta, theorem, (self.clipping, self.mechanism.law, noise_premise(rng))
        )

    @property
    def clipping(self) -> Premise:
        """The premise that bounds a teacher's answers."""
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
        allow_equal: bool = False,
    ) -> NoisyAnswers:
        """The noisy mean of one round of answers, charged before anything is drawn.

        `reducer`: the name of the reducer that all must have used. `number`: of the round; a
        seeded `rng` gives every round noise of its own by it. `allow_equal`: see `check`.
        """
        checked = self.check(answers, reducer=reducer, allow_equal=allow_equal)
        entry = self.charge(checked, ledger=ledger, what=what, rng=rng)
        h = checked[0].header
        flat = np.empty(h.size)
        for start, part in self.blocks(checked, rng=rng, number=number):
            flat[start : start + len(part)] = part
        return NoisyAnswers(
            codes=flat.reshape(h.rows, h.dimension),
            noise=self.noise,
            guarantee=self.guarantee(h.rows, delta=delta, dimension=h.dimension, rng=rng),
            entry=entry,
        )

    def charge(
        self,
        checked: Sequence[CheckedAnswers],
        *,
        ledger: Ledger | None,
        what: str = "answers of teachers",
        rng: Source | None = None,
    ) -> Entry | None:
        """Write the cost of answers that passed `check` down; nothing is drawn yet."""
        h = checked[0].header
        return charge_shards(ledger, self.loss(h.rows, dimension=h.dimension), what=what, rng=rng)

    def check(
        self,
        answers: Sequence[AnswerSource],
        *,
        reducer: str | None = None,
        allow_equal: bool = False,
    ) -> tuple[CheckedAnswers, ...]:
        """Raise `RefusedAnswers` by name unless these are K sets of answers that fit together.

        `allow_equal`: two sites may send the very same numbers, because you know that both are
        there. What comes back is all that `blocks` sums.
        """
        if len(answers) != self.teachers:
            sites = ", ".join(source.header.site for source in answers)
            raise InvalidArgument(
                "answers",
                f"{len(answers)} ({sites})",
                f"those of all {self.teachers} teachers",
                "leaving one out changes the noise on the mean: plan with the number that answered",
            )
        check_compatible(answers, radius=self.radius, reducer=reducer)
        for source in answers:
            if source.header.share != 0.0:
                raise RefusedAnswers(
                    source.display_name,
                    "it carries noise of its own",
                    "use `DistributedAggregator`",
                )
        checked = inspect_answers(answers, allow_equal=allow_equal)
        for one in checked:
            one.check_norms()
        return checked

    def blocks(
        self, checked: Sequence[CheckedAnswers], *, rng: Source, number: int = 0
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """The noisy mean, block by block, with where each block starts.

        Costs one read, one hash and one addition for each number of each teacher, and one draw for
        each number.

        **Guarantee** none by itself: whoever calls this has called `charge`.
        """
        h = checked[0].header
        widest = Sensitivity(l1=math.inf, l2=sum_sensitivity(self.radius, h.rows))
        for index, (start, total) in enumerate(block_sums(checked)):
            bounded = BoundedValue(
                value=total.astype(np.float64) * h.spacing,
                add_remove=widest,
                replace_one=widest,
                premise=self.clipping,
                spacing=h.spacing,
            )
            noisy = self.mechanism.release(
                bounded, rng=rng.child("pate", number, index), adjacency=REPLACE_ONE
            )
            yield start, noisy / self.teachers


def block_sums(checked: Sequence[CheckedAnswers]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The exact sum of all answers in units of their spacing, block by block.

    Of the very numbers that were checked: see `CheckedAnswers.read_block`.
    """
    size, block = checked[0].header.size, checked[0].block
    for start in range(0, size, block):
        total = np.zeros(min(block, size - start), dtype=np.int64)
        for one in checked:
            total += one.read_block(start)
        yield start, total


def sum_sensitivity(radius: float, queries: int) -> float:
    """How far one shard can move the codes of a teacher: 2 C sqrt(N), rounded up."""
    n = _check.count("queries", queries)
    return 2.0 * _check.positive("radius", radius) * math.sqrt(n) * ROUND_UP
