"""Ordinary PATE: teachers vote for classes, the noisy winner is released (GNMax)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet import accounting as losses
from privet.accounting.calibration import BUDGET_MARGIN
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Premise
from privet.ledger import Entry, Ledger
from privet.mechanisms import GaussianMechanism
from privet.methods.pate.mean_aggregation import NoisyLabels
from privet.methods.pate.shard_charges import (
    REPLACE_ONE,
    charge_shards,
    noise_premise,
    shard_guarantee,
)
from privet.noise import Source
from privet.noise.grid import ROUND_UP
from privet.sensitivity import BoundedValue, Sensitivity

_VOTE_SENSITIVITY = math.sqrt(2.0) * ROUND_UP
"""A changed vote takes 1 from one class and gives it to another."""


def count_votes(votes: Any, classes: int) -> NDArray[np.int64]:
    """Count votes: class numbers (teachers, queries) to counts (queries, classes).

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
class VoteAggregator(ABC):
    """Noisy winners of votes for classes: what each kind of them costs and promises."""

    charged_as: ClassVar[str] = "votes of teachers"
    title: ClassVar[str]
    classes: int
    mechanism: GaussianMechanism
    """The noise on each count."""

    def __post_init__(self) -> None:
        _check.count("classes", self.classes, minimum=2)

    @abstractmethod
    def loss(self, queries: int) -> losses.PrivacyLoss:
        """What so many queries cost, whatever the votes are."""

    @property
    def theorem(self) -> str:
        """The statement that the loss rests on."""
        return f"{self.mechanism.theorem}, {self.title}"

    @property
    def premises(self) -> tuple[Premise, ...]:
        """The premises of a vote: what bounds it, and what hides it."""
        return (premises.ONE_VOTE, self.mechanism.law)

    def guarantee(self, queries: int, *, delta: float, rng: Source | None = None) -> Guarantee:
        """What so many queries promise, whatever the votes were."""
        rests_on = (*self.premises, noise_premise(rng))
        return shard_guarantee(self.loss(queries), delta, self.theorem, rests_on)

    def encode(self, site: str, predictions: Any, *, queries: int) -> NDArray[np.int64]:
        """A teacher's votes: its most probable classes; not a number counts as improbable."""
        p = np.asarray(predictions, dtype=np.float64)
        if p.shape != (queries, self.classes):
            expected = f"probabilities of shape {(queries, self.classes)}"
            raise InvalidArgument("answers", p.shape, expected)
        return np.asarray(np.nan_to_num(p, nan=-np.inf).argmax(axis=1))

    def _labels(
        self, labels: NDArray[np.int64], entry: Entry | None, *, delta: float, rng: Source
    ) -> NoisyLabels:
        return NoisyLabels(
            labels=labels,
            answered=labels >= 0,
            noise=self.mechanism.scale,
            guarantee=self.guarantee(len(labels), delta=delta, rng=rng),
            entry=entry,
        )


@final
@dataclass(frozen=True, kw_only=True)
class GNMax(VoteAggregator):
    """The class with the most votes after Gaussian noise on the counts.

    A changed shard moves the counts of a query by sqrt(2), of N queries by sqrt(2 N): one Gaussian
    loss with mu = sqrt(2 N) / sigma, exactly. Taking the winner is post-processing.

    **Guarantee** `guarantee(queries, ...)`: replace-one, per teacher shard, whatever the votes.

    >>> gnmax = GNMax.for_budget(classes=10, queries=100, epsilon=2.0, delta=1e-5)
    >>> round(gnmax.mechanism.scale, 2), round(gnmax.guarantee(100, delta=1e-5).epsilon, 6)
    (28.2, 2.0)

    Papernot et al., "Scalable Private Learning with PATE" (2018), section 4.1.
    """

    title: ClassVar[str] = "GNMax"

    @classmethod
    def for_budget(cls, *, classes: int, queries: int, epsilon: float, delta: float) -> Self:
        """The least noise for so many answers."""
        blank = _blank(queries, _check.count("classes", classes, minimum=2), _VOTE_SENSITIVITY)
        mechanism = GaussianMechanism.for_budget(
            blank, epsilon=epsilon, delta=delta, adjacency=REPLACE_ONE
        )
        return cls(classes=classes, mechanism=mechanism)

    def loss(self, queries: int) -> losses.Gaussian:
        """What so many answers cost."""
        return self.mechanism.loss(
            _blank(queries, self.classes, _VOTE_SENSITIVITY), adjacency=REPLACE_ONE
        )

    def release(
        self, votes: Any, *, rng: Source, delta: float, ledger: Ledger | None = None
    ) -> NoisyLabels:
        """One label a query from (teachers, queries) class numbers; charged first."""
        counts = count_votes(votes, self.classes)
        entry = charge_shards(ledger, self.loss(len(counts)), what="votes of teachers", rng=rng)
        noisy = _noisy(counts, self.mechanism, _VOTE_SENSITIVITY, rng)
        return self._labels(noisy.argmax(axis=1), entry, delta=delta, rng=rng)


@final
@dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(VoteAggregator):
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

    title: ClassVar[str] = "confident GNMax"
    threshold: float
    answers: int
    check: GaussianMechanism

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
        """The least noise for a budget, of which `share` of mu^2 goes to the checks.

        The rest is for at most `answers` answers. No trial of .3 was recorded.
        """
        mu = losses.gaussian_mu(epsilon, delta) * BUDGET_MARGIN
        n, a = _check.count("queries", queries), _check.count("answers", answers)
        share = _check.open_unit("share", share)
        return cls(
            classes=classes,
            threshold=threshold,
            answers=a,
            check=GaussianMechanism(scale=math.sqrt(n / share) / mu),
            mechanism=GaussianMechanism(
                scale=_VOTE_SENSITIVITY * math.sqrt(a / (1.0 - share)) / mu
            ),
        )

    def loss(self, queries: int) -> losses.PrivacyLoss:
        """What so many checks and at most `answers` answers cost."""
        checks = self.check.loss(_blank(queries, 1, 1.0), adjacency=REPLACE_ONE)
        most = _blank(min(queries, self.answers), self.classes, _VOTE_SENSITIVITY)
        return checks + self.mechanism.loss(most, adjacency=REPLACE_ONE)

    def release(
        self, votes: Any, *, rng: Source, delta: float, ledger: Ledger | None = None
    ) -> NoisyLabels:
        """A label for the first `answers` queries that pass the check, -1 for the others."""
        counts = count_votes(votes, self.classes)
        n = len(counts)
        what = "votes of teachers, where they agree"
        entry = charge_shards(ledger, self.loss(n), what=what, rng=rng)
        highest = _noisy(counts.max(axis=1), self.check, 1.0, rng.child("check"))
        chosen = np.flatnonzero(highest >= self.threshold)[: self.answers]
        labels = np.full(n, -1, dtype=np.int64)
        if len(chosen):
            noisy = _noisy(counts[chosen], self.mechanism, _VOTE_SENSITIVITY, rng.child("answer"))
            labels[chosen] = noisy.argmax(axis=1)
        return self._labels(labels, entry, delta=delta, rng=rng)


def _bounded(counts: NDArray[np.float64], shift: float) -> BoundedValue:
    """Counts of which a changed shard moves every query by at most `shift`, in L2."""
    either = Sensitivity(l1=math.inf, l2=shift * math.sqrt(len(counts)) * ROUND_UP)
    return BoundedValue(
        value=counts, add_remove=either, replace_one=either, premise=premises.ONE_VOTE, spacing=1.0
    )


def _blank(queries: int, classes: int, shift: float) -> BoundedValue:
    """The same without votes: all that a plan needs."""
    return _bounded(np.zeros((_check.count("queries", queries), classes)), shift)


def _noisy(
    counts: NDArray[np.int64], mechanism: GaussianMechanism, shift: float, rng: Source
) -> NDArray[np.float64]:
    value = _bounded(counts.astype(np.float64), shift)
    return mechanism.release(value, rng=rng, adjacency=REPLACE_ONE)
