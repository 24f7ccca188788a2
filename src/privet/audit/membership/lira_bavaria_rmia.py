"""Attacks that compare the target with reference models: LiRA, BaVarIA and RMIA.

*Online*: some references were trained on the record, others not. *Offline*: only those without it
are used, so that no model must be trained after the record is known.

Symbols: phi the target's confidence in a record, phi_k that of reference k; p = 1 / (1 + e^-phi).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from privet import _check
from privet.audit.membership.input_checks import Floats, Mask
from privet.audit.membership.membership_finding import evaluate
from privet.audit.membership.reference_models import References
from privet.errors import InvalidArgument

Centre = Literal["mean", "median"]
Pool = Literal["within", "overall"]

_LEAST = 1e-12
"""Of a variance: references that all say the same leave none."""
_NUMBERS = 2**19  # 4 MB of float64 at a time: below 32 MB the allocator uses memory again


class ReferenceAttack(ABC):
    """Scores the records of a target from its confidences and those of reference models."""

    def score(self, confidence: Any, references: References) -> Floats:
        """One score a record, higher for members.

        `confidence`: of the target, for the same records and in the same order as the references.
        """
        phi = np.asarray(confidence, dtype=np.float64)
        if phi.shape != (references.records,) or not np.isfinite(phi).all():
            expected = f"a finite number for each of {references.records} records"
            raise InvalidArgument("confidence", phi.shape, expected)
        return self._score(phi, references)

    @abstractmethod
    def _score(self, phi: Floats, references: References) -> Floats: ...


@final
@dataclass(frozen=True, kw_only=True)
class LiRA(ReferenceAttack):
    """The likelihood-ratio attack, online: log N(phi; in) - log N(phi; out) for each record.

    Normal laws of phi among references with and without the record, about their mean (or median,
    as the authors' code has it). A record with fewer than `own_variance_from` models of a side
    takes one variance for all records: that of phi about each record's mean ("within"), or of all
    phi of the side together ("overall", as LeakPro has it, which the differences of records widen).
    Means within records found most on two of three sets (docs/guide/membership.md).

    Carlini et al. (2022), algorithm 1, one query a record.

    >>> refs = References(confidence=[[5, 0], [1, 4], [6, 1], [0, 5]],
    ...                   members=[[True, False], [False, True]] * 2)
    >>> LiRA().score([5.0, 0.0], refs).round(2).tolist()
    [20.0, -20.0]
    """

    own_variance_from: int = 32
    centre: Centre = "mean"
    pool: Pool = "within"

    def __post_init__(self) -> None:
        _check_law(self.centre, self.pool)

    def _score(self, phi: Floats, references: References) -> Floats:
        log_ratio = np.zeros_like(phi)
        for inside, sign in ((references.members, 1.0), (~references.members, -1.0)):
            centre, variance = _normal(
                references.confidence, inside, self.own_variance_from, self.centre, self.pool
            )
            log_ratio -= sign * 0.5 * (np.square(phi - centre) / variance + np.log(variance))
        return log_ratio


@final
@dataclass(frozen=True, kw_only=True)
class BaVarIA(ReferenceAttack):
    """LiRA with a prior on each record's variance: the ratio of two Student-t predictions.

    An inverse-gamma prior about the pooled variance s^2, worth `prior` observations, and none on
    the mean: with n models of a side of mean m and sum of squares S about it, the next phi is m +
    sqrt((1 + 1/n) (prior s^2 + S) / nu) t_nu, nu = prior + n - 1. Few models lean on the pool, many
    on themselves, and nothing switches in between.

    After Braennvall, *Exponential-family membership inference: from LiRA and RMIA to BaVarIA*
    (2026, arXiv 2603.11799); the weight of the prior is ours.

    >>> refs = References(confidence=[[5, 0], [1, 4], [6, 1], [0, 5]],
    ...                   members=[[True, False], [False, True]] * 2)
    >>> high, low = BaVarIA().score([5.0, 0.0], refs)
    >>> bool(high > 3.0), bool(low < -3.0)
    (True, True)
    """

    prior: float = 4.0

    def __post_init__(self) -> None:
        _check.positive("prior", self.prior)

    def _score(self, phi: Floats, references: References) -> Floats:
        log_ratio = np.zeros_like(phi)
        for inside, sign in ((references.members, 1.0), (~references.members, -1.0)):
            n = _count(inside)
            mean, squares = _of_each_record(references.confidence, inside, n, "mean")
            nu = self.prior + n - 1.0
            pooled = max(float(squares.sum() / (n - 1).sum()), _LEAST)
            spread = (1.0 + 1.0 / n) * (self.prior * pooled + squares) / nu
            log_ratio += sign * stats.t.logpdf(phi, nu, loc=mean, scale=np.sqrt(spread))
        return log_ratio


@final
@dataclass(frozen=True, kw_only=True)
class OfflineLiRA(ReferenceAttack):
    """LiRA with references that never saw the record: how far phi lies above what they say.

    The score is (phi - mu_out) / sigma_out, which orders records as the paper's
    1 - P[N(mu_out, sigma_out^2) > phi] does, without its rounding to 1.

    Carlini et al. (2022), equation 4.

    >>> refs = References(confidence=[[0.0, 0.0], [2.0, 2.0]], members=np.zeros((2, 2), bool))
    >>> OfflineLiRA().score([5.0, 1.0], refs).round(2).tolist()
    [2.83, 0.0]
    """

    own_variance_from: int = 32
    centre: Centre = "mean"
    pool: Pool = "within"

    def __post_init__(self) -> None:
        _check_law(self.centre, self.pool)

    def _score(self, phi: Floats, references: References) -> Floats:
        centre, variance = _normal(
            references.confidence,
            ~references.members,
            self.own_variance_from,
            self.centre,
            self.pool,
        )
        score: Floats = (phi - centre) / np.sqrt(variance)
        return score


@final
@dataclass(frozen=True, kw_only=True)
class RMIA(ReferenceAttack):
    """The relative attack, online: the share of population records z that x beats.

    score(x) = P_z[ (p(x) / p_bar(x)) / (p(z) / p_bar(z)) >= gamma ], where p is the target's
    probability of the true label and p_bar(x) = (mean of references with x + mean of those
    without) / 2. All records are the population. Since the z are the same for all x, the score is
    the rank of p(x) / p_bar(x) among them: one sort instead of all pairs. `temperature` divides
    all confidences first, so that those near certainty still differ. Peers divide the logits of all
    classes: `confidence_of_logits` has a temperature for that, with 1 here.

    Zarifzadeh, Liu and Shokri, *Low-cost high-power membership inference attacks* (2024),
    equations 2 to 4.

    >>> refs = References(confidence=[[3, 0], [0, 3]], members=[[True, False], [False, True]])
    >>> RMIA().score([3.0, 0.0], refs).tolist()
    [1.0, 0.5]
    """

    gamma: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check.positive("gamma", self.gamma)
        _check.positive("temperature", self.temperature)

    def _score(self, phi: Floats, references: References) -> Floats:
        p = special.expit(references.confidence / self.temperature)
        inside = references.members
        average = 0.5 * (_mean(p, inside, "with") + _mean(p, ~inside, "without"))
        return _share_beaten(special.expit(phi / self.temperature) / average, self.gamma)


@final
@dataclass(frozen=True, kw_only=True)
class OfflineRMIA(ReferenceAttack):
    """RMIA with references that never saw the record.

    p_bar(x) = ((1 + a) p_out(x) + 1 - a) / 2: a guess, linear in p_out, at what models with x
    would have said. a = 1 means that training on x changes nothing, a = 0 that it makes x certain;
    `tune` chooses a on the references. `both_sides`: references that saw x count too, by what the
    same line says that they would have said without it, (p_in + a - 1) / a; so one reference serves
    for all records, as in Privacy Meter.

    Zarifzadeh et al. (2024), appendix B.2.2.

    >>> refs = References(confidence=[[2.0, 0.0]], members=np.zeros((1, 2), bool))
    >>> OfflineRMIA().score([2.0, 3.0], refs).tolist()
    [0.5, 1.0]
    """

    gamma: float = 1.0
    a: float = 0.3
    both_sides: bool = False

    def __post_init__(self) -> None:
        _check.positive("gamma", self.gamma)
        _check.unit("a", self.a)
        if self.both_sides:
            _check.positive("a", self.a)

    def _score(self, phi: Floats, references: References) -> Floats:
        p, inside = special.expit(references.confidence), references.members
        if self.both_sides:
            p_out = np.where(inside, (p + self.a - 1.0) / self.a, p).mean(axis=0)
        else:
            p_out = _mean(p, ~inside, "without")
        average = 0.5 * ((1.0 + self.a) * p_out + 1.0 - self.a)
        return _share_beaten(special.expit(phi) / average, self.gamma)

    def tune(
        self, references: References, *, choices: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    ) -> OfflineRMIA:
        """The same with the a that does best (AUC) when each reference is attacked by the others.

        Looks at references only, so what it then finds on a target is not hindsight. Records that
        all other references were trained on are left out.
        """
        means = [np.mean(list(_trials(replace(self, a=a), references))) for a in choices]
        return replace(self, a=choices[int(np.argmax(means))])


def _trials(attack: ReferenceAttack, references: References) -> list[float]:
    """AUC on each reference as the target, the others as its references."""
    areas = []
    for k in range(references.count):
        phi, inside, rest = references.without(k)
        usable = ~rest.members.all(axis=0)
        scores = attack.score(phi[usable], rest.only(usable))
        areas.append(evaluate(scores, inside[usable]).auc.value)
    return areas


def _check_law(centre: str, pool: str) -> None:
    if centre not in ("mean", "median"):
        raise InvalidArgument("centre", centre, "'mean' or 'median'")
    if pool not in ("within", "overall"):
        raise InvalidArgument("pool", pool, "'within' (records) or 'overall'")


def _normal(
    phi: Floats, side: Mask, own_variance_from: int, centre: Centre, pool: Pool
) -> tuple[Floats, Floats]:
    """Centre and variance of phi over the models of one side, for each record."""
    count = _count(side)
    middle, squares = _of_each_record(phi, side, count, centre)
    if pool == "overall":
        pooled = float(phi[side].var())
    else:
        pooled = float(squares.sum() / np.maximum(count - 1, 0).sum())
    own = squares / count  # of greatest likelihood, as the authors' code and LeakPro have it
    variance = np.where(count >= max(2, own_variance_from), own, pooled)
    return middle, np.maximum(variance, _LEAST)


def _count(side: Mask) -> NDArray[np.int64]:
    """How many models of one side there are for each record."""
    count: NDArray[np.int64] = side.sum(axis=0)
    if (count == 0).any() or (count < 2).all():
        raise InvalidArgument(
            "references",
            f"{int(count.min())} to {int(count.max())} models a record on one side",
            "at least one for every record and two for some",
            "train more references (4 for LiRA online, 2 offline)",
        )
    return count


def _of_each_record(
    phi: Floats, side: Mask, count: NDArray[np.int64], centre: Centre
) -> tuple[Floats, Floats]:
    """Centre of phi, and squares about its mean added up, over models of one side, by record.

    Some records at a time, in memory that is used again: fresh pages for all of them would make a
    million records cost more than ten times a hundred thousand.
    """
    found = np.empty((2, phi.shape[1]))
    size = max(1, _NUMBERS // len(phi))
    for start in range(0, phi.shape[1], size):
        some = slice(start, start + size)
        here, inside, n = phi[:, some], side[:, some], count[some]
        middle = mean = np.where(inside, here, 0.0).sum(axis=0) / n
        if centre == "median":
            ordered, place = np.sort(np.where(inside, here, np.inf), axis=0), np.arange(len(n))
            middle = 0.5 * (ordered[(n - 1) // 2, place] + ordered[n // 2, place])
        found[0, some] = middle
        found[1, some] = np.square(np.where(inside, here - mean, 0.0)).sum(axis=0)
    return found[0], found[1]


def _mean(p: Floats, side: Mask, name: str) -> Floats:
    count = side.sum(axis=0)
    if (count == 0).any():
        raise InvalidArgument(
            "references",
            f"{int((count == 0).sum())} records with none {name} them",
            f"at least one model {name} each record",
            "take the offline attack, or more references",
        )
    mean: Floats = np.where(side, p, 0.0).sum(axis=0) / count
    return mean


def _share_beaten(ratio: Floats, gamma: float) -> Floats:
    """For each x the share of z with ratio(x) / ratio(z) >= gamma, by one sort."""
    beaten = np.searchsorted(np.sort(ratio), ratio / gamma, side="right")
    return beaten / len(ratio)
