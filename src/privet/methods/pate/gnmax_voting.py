"""Ordinary PATE: teachers vote for classes, the noisy winner is released (GNMax)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet import loss as losses
from privet.bounds import Bounded, Sensitivity
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger
from privet.mechanisms import Gaussian
from privet.methods.pate.aggregate import (
    BELOW,
    REPLACE_ONE,
    charge_shards,
    key_of,
    shard_promise,
)
from privet.noise import Source

_MOVED = math.sqrt(2.0) * (1.0 + 2.0**-50)
"""A changed vote takes 1 from one class and gives it to another."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Election:
    """What came out: public. `labels` is -1 where no answer was given."""

    labels: NDArray[np.int64] = field(repr=False)
    guarantee: Guarantee
    entry: Entry | None

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which queries have an answer."""
        return np.asarray(self.labels >= 0)


def count_votes(votes: Any, classes: int) -> NDArray[np.int64]:
    """(teachers, queries) class numbers to (queries, classes) counts.

    A vote that is no class number goes to class 0: refusing it would tell about the teacher.

    >>> count_votes([[0, 1], [2, 1]], 3).tolist()
    [[1, 0, 1], [0, 2, 0]]
    """
    k = _check.count("classes", classes, minimum=2)
    v = np.asarray(votes)
    if v.ndim != 2 or v.size == 0:
        raise InvalidArgument("votes", v.shape, "class numbers of shape (teachers, queries)")
    v = np.where((v >= 0) & (v < k), v, 0).astype(np.int64)
    counts = np.zeros((v.shape[1], k), dtype=np.int64)
    for row in v:
        counts[np.arange(v.shape[1]), row] += 1
    return counts


@dataclass(frozen=True, kw_only=True)
class Votes(ABC):
    """Noisy winners of votes for classes: what each kind of them costs and promises."""

    called: ClassVar[str]
    classes: int
    mechanism: Gaussian
    """The noise on each count."""

    def __post_init__(self) -> None:
        _check.count("classes", self.classes, minimum=2)

    @abstractmethod
    def loss(self, queries: int) -> losses.PrivacyLoss:
        """What so many queries cost, whatever the votes are."""

    @property
    def theorem(self) -> str:
        """The statement that the loss rests on."""
        return f"{self.mechanism.theorem}, {self.called}"

    def guarantee(self, queries: int, *, delta: float, rng: Source | None = None) -> Guarantee:
        """What so many queries promise, whatever the votes were."""
        rests_on = (premises.ONE_VOTE, self.mechanism.law, key_of(rng))
        return shard_promise(self.loss(queries), delta, self.theorem, rests_on)


@final
@dataclass(frozen=True, kw_only=True)
class GNMax(Votes):
    """The class with the most votes after Gaussian noise on the counts.

    A changed shard moves the counts of a query by sqrt(2), of N queries by sqrt(2 N): one Gaussian
    loss with mu = sqrt(2 N) / sigma, exactly. Taking the winner is post-processing.

    **Guarantee** `guarantee(queries, ...)`: replace-one, per teacher shard, whatever the votes.

    >>> gnmax = GNMax.for_budget(classes=10, queries=100, epsilon=2.0, delta=1e-5)
    >>> round(gnmax.mechanism.scale, 2), round(gnmax.guarantee(100, delta=1e-5).epsilon, 6)
    (28.2, 2.0)

    Papernot et al., "Scalable Private Learning with PATE" (2018), section 4.1.
    """

    called: ClassVar[str] = "GNMax"

    @classmethod
    def for_budget(cls, *, classes: int, queries: int, epsilon: float, delta: float) -> Self:
        """The least noise for so many answers."""
        blank = _blank(queries, _check.count("classes", classes, minimum=2), _MOVED)
        mechanism = Gaussian.for_budget(blank, epsilon=epsilon, delta=delta, adjacency=REPLACE_ONE)
        return cls(classes=classes, mechanism=mechanism)

    def loss(self, queries: int) -> losses.Gaussian:
        """What so many answers cost."""
        return self.mechanism.loss(_blank(queries, self.classes, _MOVED), adjacency=REPLACE_ONE)

    def release(
        self, votes: Any, *, rng: Source, delta: float, ledger: Ledger | None = None
    ) -> Election:
        """One label a query from (teachers, queries) class numbers; charged first."""
        counts = count_votes(votes, self.classes)
        entry = charge_shards(ledger, self.loss(len(counts)), what="votes of teachers", rng=rng)
        noisy = _noisy(counts, self.mechanism, _MOVED, rng)
        return Election(
            labels=noisy.argmax(axis=1),
            guarantee=self.guarantee(len(counts), delta=delta, rng=rng),
            entry=entry,
        )


@final
@dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(Votes):
    """Only queries on which teachers agree are answered: first a noisy check, then GNMax.

    Query n is answered when max_c counts + N(0, sigma_1^2) >= `threshold`; a changed shard moves
    the maximum by at most 1. At most `answers` are given; after that none. So whatever the votes,
    mu^2 <= N / sigma_1^2 + 2 A / sigma_2^2, and all of it is charged beforehand.

    **Guarantee** `guarantee(queries, ...)`: replace-one, per teacher shard, whatever the votes.
    Which queries were answered is part of what is released.

    >>> confident = ConfidentGNMax.for_budget(
    ...     classes=10, queries=500, answers=100, threshold=150.0, epsilon=2.0, delta=1e-5)
    >>> round(confident.check.scale, 1), round(confident.mechanism.scale, 1)
    (81.4, 33.7)

    Papernot et al. (2018), algorithm 1. Adaptive composition of Gaussian losses up to a bound on
    the sum of mu^2: Smith and Thakurta (2022).
    """

    called: ClassVar[str] = "confident GNMax"
    threshold: float
    answers: int
    check: Gaussian

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.count("answers", self.answers)

    @classmethod
    def for_budget(
        cls,
        *,
        classes: int,
        queries: int,
        answers: int,
        threshold: float,
        epsilon: float,
        delta: float,
        share: float = 0.3,
    ) -> Self:
        """`share` of mu^2 goes to the checks, the rest to at most `answers` answers."""
        mu = losses.gaussian_mu(epsilon, delta) * BELOW
        n, a = _check.count("queries", queries), _check.count("answers", answers)
        share = _check.open_unit("share", share)
        return cls(
            classes=classes,
            threshold=threshold,
            answers=a,
            check=Gaussian(scale=math.sqrt(n / share) / mu),
            mechanism=Gaussian(scale=_MOVED * math.sqrt(a / (1.0 - share)) / mu),
        )

    def loss(self, queries: int) -> losses.PrivacyLoss:
        """What so many checks and at most `answers` answers cost."""
        checks = self.check.loss(_blank(queries, 1, 1.0), adjacency=REPLACE_ONE)
        given = _blank(min(queries, self.answers), self.classes, _MOVED)
        return checks + self.mechanism.loss(given, adjacency=REPLACE_ONE)

    def release(
        self, votes: Any, *, rng: Source, delta: float, ledger: Ledger | None = None
    ) -> Election:
        """A label for the first `answers` queries that pass the check, -1 for the others."""
        counts = count_votes(votes, self.classes)
        n = len(counts)
        what = "votes of teachers, where they agree"
        entry = charge_shards(ledger, self.loss(n), what=what, rng=rng)
        highest = _noisy(counts.max(axis=1), self.check, 1.0, rng.child("check"))
        chosen = np.flatnonzero(highest >= self.threshold)[: self.answers]
        labels = np.full(n, -1, dtype=np.int64)
        if len(chosen):
            noisy = _noisy(counts[chosen], self.mechanism, _MOVED, rng.child("answer"))
            labels[chosen] = noisy.argmax(axis=1)
        stated = self.guarantee(n, delta=delta, rng=rng)
        return Election(labels=labels, guarantee=stated, entry=entry)


def _bounded(counts: NDArray[np.float64], moved: float) -> Bounded:
    """Counts of which a changed shard moves every query by at most `moved`, in L2."""
    both = Sensitivity(l1=math.inf, l2=moved * math.sqrt(len(counts)) * (1.0 + 2.0**-50))
    return Bounded(
        value=counts, add_remove=both, replace_one=both, premise=premises.ONE_VOTE, spacing=1.0
    )


def _blank(queries: int, classes: int, moved: float) -> Bounded:
    """The same without votes: all that a plan needs."""
    return _bounded(np.zeros((_check.count("queries", queries), classes)), moved)


def _noisy(
    counts: NDArray[np.int64], mechanism: Gaussian, moved: float, rng: Source
) -> NDArray[np.float64]:
    value = _bounded(counts.astype(np.float64), moved)
    return mechanism.release(value, rng=rng, adjacency=REPLACE_ONE)
