"""Audit runs whose noise has a known law: bound its width from draws, then account exactly.

Both exact values of every release are known (`all_releases_audit`), so the noise that was drawn is
too. Of normal noise, along the line between the two exact values: m is their distance and u the
noise, both over the stated noise. The sum of n squares u^2 over r^2 is chi-squared with n degrees
of freedom if r is the true spread, and mu^2 = sum m^2 / r^2 over all releases. That knows the
middle of the noise beforehand and so sees with 100 runs what a difference of means sees with 5,000.
Releases of one mechanism have one spread, those of another have their own. Laplace noise: |u| is
exponential, their sum a gamma variable. Answers of records by randomised response: true ones are
counted. Random samples: how often the record is in.

A number without noise of its own, or two that share it, are looked for besides (`hidden_shift`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from privet import accounting as losses
from privet.audit.epsilon_lower_bounds import clopper_pearson
from privet.audit.gaussian_score_audit import check_normal_shape
from privet.audit.missing_or_shared_noise import hidden_shift
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.mechanisms import (
    DiscreteGaussianMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    RandomisedResponse,
    log_density_ratio,
)
from privet.mechanisms.release_transcript import ReleaseRecord, Transcript

NUMBERS = 20_000
"""So many released numbers are looked at one by one; more would take more memory than they show."""
NORMAL, LAPLACE, ANSWER = "normal", "Laplace", "answers"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ObservedRun:
    """One run: what it released, and both exact values of every release."""

    inside: bool
    transcript: Transcript
    present: Transcript
    absent: Transcript

    @property
    def log_ratio(self) -> float:
        """The privacy loss of this run."""
        return log_density_ratio.transcript_log_ratio(self.present, self.absent)


@final
@dataclass(frozen=True, kw_only=True)
class NoiseWidthAccount:
    """The account of releases whose noise has a stated law, and a width bounded from draws."""

    whole: Transcript
    delta: float
    adjacency: Adjacency
    confidence: float

    @property
    def uses_sampling(self) -> bool:
        """Whether records take part at random."""
        return any(r.rate < 1.0 for r in self.whole.releases)

    @property
    def laws(self) -> set[str] | None:
        """The laws of all releases; None if one is not known or they are not accounted together."""
        found = {_law(r) for r in self.whole.releases}
        if not (found <= {NORMAL, ANSWER} or found <= {LAPLACE, ANSWER}):
            return None
        return {law for law in found if law is not None}

    def epsilon(self, runs: Sequence[ObservedRun]) -> float:
        """A lower bound of epsilon; raises InvalidArgument where noise has another shape."""
        kinds = [_law(r) for r in self.whole.releases]
        groups = self.groups()
        answers = [k for k, kind in enumerate(kinds) if kind == ANSWER]
        if LAPLACE in kinds:
            return self._laplace(runs, answers, (1.0 - self.confidence) / (1 + len(answers)))
        alpha = (1.0 - self.confidence) / (len(groups) + len(answers) + self.uses_sampling + 1)
        apart = groups if self.uses_sampling else [[k for of in groups for k in of]]
        hidden = [
            hidden_shift(
                *_numbers(runs, of), alpha=alpha / len(apart), pairs=not self.uses_sampling
            )
            for of in apart
            if of
        ]
        least = np.zeros(len(kinds))
        for of in groups:
            moved = np.array([[_moved(one, k) for k in of] for one in runs])
            noise = np.array([[_noise(one, k) for k in of] for one in runs])
            if (moved > 0.0).any():
                least[of] = moved.min(axis=0) / normal_spread(noise[moved > 0.0], alpha=alpha)
        if self.uses_sampling:
            each = [self._one_step(mu, of) for mu, of in zip(hidden, groups, strict=True)]
            return max([self._sampled_epsilon(runs, least, alpha), *each])
        pairs = [_answers(runs, k, alpha) for k in answers]
        mu = max([float(np.linalg.norm(least)), *hidden])
        if math.isinf(mu):
            return math.inf
        return composed_epsilon(mu, [pair for pair in pairs if pair is not None], self.delta)

    def _one_step(self, mu: float, of: Sequence[int]) -> float:
        """What one release of these shows of a record that takes part at random, if mu away."""
        rate = min(self.whole.releases[k].rate for k in of)
        if mu == 0.0 or math.isinf(mu):
            return math.inf if mu > 0.0 and self.delta < rate else 0.0
        step = losses.SampledGaussian(
            sample_rate=rate, noise_multiplier=_up(1.0 / mu), adjacency=self.adjacency
        )
        return float(step.epsilon(self.delta))

    def groups(self) -> list[list[int]]:
        """Normal releases by mechanism: those of one have one spread."""
        found: list[tuple[Any, list[int]]] = []
        for k, r in enumerate(self.whole.releases):
            if _law(r) != NORMAL:
                continue
            for mechanism, of in found:
                if mechanism == r.mechanism:
                    of.append(k)
                    break
            else:
                found.append((r.mechanism, [k]))
        return [of for _, of in found]

    def _laplace(self, runs: Sequence[ObservedRun], answers: list[int], alpha: float) -> float:
        """Of coordinates that the neighbours move; each is a release of its own."""
        sizes, moved = zip(*(_laplace_of(one) for one in runs), strict=True)
        drawn = np.concatenate(sizes)
        if not len(drawn):
            return 0.0
        spread = float(drawn.sum() / stats.gamma.ppf(alpha, len(drawn)))
        least = min(moved, key=lambda m: float(m.sum())) / spread
        chances = [p for k in answers if (p := _answers(runs, k, alpha)) is not None]
        if any(len(p) > 2 for p, _ in chances):
            raise InvalidArgument("classes", len(chances[0][0]), "two, beside Laplace noise")
        pure = [float(np.abs(np.log(p) - np.log(q)).max()) for p, q in chances]
        if self.delta == 0.0:
            return float(least.sum()) + sum(pure)
        parts: list[losses.PrivacyLoss] = [
            losses.Laplace(epsilon_each=float(m), adjacency=self.adjacency) for m in least
        ]
        parts += [losses.Pure(epsilon_each=e, adjacency=self.adjacency) for e in pure if e > 0.0]
        return float(losses.compose(parts, adjacency=self.adjacency).epsilon(self.delta))

    def _sampled_epsilon(
        self, runs: Sequence[ObservedRun], moved: NDArray[Any], alpha: float
    ) -> float:
        """Steps on random samples: the record's rate is bounded too, from the runs that have it.

        Samples that vary less than independent ones do (a shuffle, say) amplify nothing that the
        account could rely on: they count as if the record were in all of them.
        """
        rates = np.array([r.rate for r in self.whole.releases])
        steps = np.flatnonzero((rates < 1.0) & (moved > 0.0))
        if len(steps):
            joined = np.array([[_joined(one, int(k)) for k in steps] for one in runs if one.inside])
            freedom, q = len(joined) - 1, rates[steps]
            spread = joined.sum(axis=1).var(ddof=1) / float((q * (1.0 - q)).sum())
            if stats.chi2.cdf(spread * freedom, freedom) < 1e-6:  # as rarely as `LEVEL` by chance
                rates[steps] = 1.0
            else:
                low, _ = clopper_pearson(int(joined.sum()), joined.size, alpha)
                rates[steps] = np.minimum(1.0, q * low / q.mean())
        parts: list[losses.PrivacyLoss] = [
            losses.SampledGaussian(
                sample_rate=float(q), noise_multiplier=_up(1.0 / m), adjacency=self.adjacency
            )
            if q < 1.0
            else losses.Gaussian(mu=float(m), adjacency=self.adjacency)
            for m, q in zip(moved, rates, strict=True)
            if m > 0.0 and q > 0.0
        ]
        if not parts:
            return 0.0
        return float(losses.compose(parts, adjacency=self.adjacency).epsilon(self.delta))


def normal_spread(noise: NDArray[np.float64], *, alpha: float) -> float:
    """An upper limit of the width of normal noise about 0, wrong with probability alpha.

    >>> from privet.noise import seeded
    >>> 1.0 < normal_spread(seeded(0).gaussian(400), alpha=0.01) < 1.15
    True
    """
    if len(noise) >= 100:
        check_normal_shape(noise)
    return math.sqrt(float(np.square(noise).sum()) / float(stats.chi2.ppf(alpha, len(noise))))


def composed_epsilon(mu: float, pairs: Sequence[tuple[Any, Any]], delta: float) -> float:
    """epsilon(delta) of a normal release with answers beside it, exactly.

    delta(e) = sum over answers o of P(o) delta_mu(e - ln P(o) / Q(o)), in either direction; each
    pair is the probabilities of the answers on the two sides.

    >>> half = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    >>> round(composed_epsilon(0.0, [half], 0.0), 4), round(composed_epsilon(1.0, [], 1e-5), 2)
    (1.0986, 4.38)
    """
    p, q = np.ones(1), np.ones(1)
    for first, second in pairs:
        p, q = np.outer(p, first).ravel(), np.outer(q, second).ravel()
    if delta == 0.0:
        apart = float(np.abs(np.log(p) - np.log(q)).max())
        return math.inf if mu > 0.0 else apart

    def over(e: float) -> float:
        return max(_mixed(e, mu, a, b) for a, b in ((p, q), (q, p))) - delta

    if over(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while over(high) > 0.0:
        high *= 2.0
    return float(optimize.brentq(over, 0.0, high, xtol=1e-10))  # far finer than the draws tell


def _mixed(e: float, mu: float, p: NDArray[Any], q: NDArray[Any]) -> float:
    shifted = e - (np.log(p) - np.log(q))
    if mu == 0.0:
        return float((p * np.maximum(-np.expm1(shifted), 0.0)).sum())
    first = special.ndtr(mu / 2.0 - shifted / mu)
    second = np.exp(shifted + special.log_ndtr(-mu / 2.0 - shifted / mu))
    return float((p * (first - second)).sum())


def _law(r: ReleaseRecord) -> str | None:
    """What the noise of a release is stated to be; a word stands for normal noise of training."""
    if isinstance(r.mechanism, GaussianMechanism | DiscreteGaussianMechanism | str):
        return NORMAL
    if isinstance(r.mechanism, LaplaceMechanism):
        return LAPLACE
    return ANSWER if isinstance(r.mechanism, RandomisedResponse) else None


def _moved(one: ObservedRun, k: int) -> float:
    """How far the neighbours move a normal release, over its stated noise."""
    a, b = one.present.releases[k], one.absent.releases[k]
    return math.sqrt(max(0.0, 2.0 * a.log_ratio(a.exact, a.exact, b.exact)))


def _noise(one: ObservedRun, k: int) -> float:
    """The noise that was drawn along that line, over the stated one."""
    m = _moved(one, k)
    if m == 0.0:
        return 0.0
    made, a, b = (t.releases[k] for t in (one.transcript, one.present, one.absent))
    drawn = made.noisy - made.exact
    return (a.log_ratio(a.exact + drawn, a.exact, b.exact) - 0.5 * m * m) / m


def _numbers(runs: Sequence[ObservedRun], of: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The noise of the numbers of these releases, and how far it is moved: a line a run.

    Of the first releases only where all would be too many, and of those that always have one size.
    """
    of = [k for k in of if len({one.transcript.releases[k].exact.size for one in runs}) == 1]
    sizes = np.cumsum([runs[0].transcript.releases[k].exact.size for k in of])
    of = of[: max(1, int((sizes <= NUMBERS).sum()))]

    def line(one: ObservedRun, exact: bool) -> NDArray[Any]:
        a, b = (one.present, one.absent) if exact else (one.transcript, one.transcript)
        parts = [
            np.asarray(a.releases[k].exact if exact else a.releases[k].noisy, dtype=np.float64)
            - b.releases[k].exact
            for k in of
        ]
        return np.concatenate([np.zeros(0), *(p.ravel() for p in parts)])

    return np.array([line(one, False) for one in runs]), np.array([line(one, True) for one in runs])


def _laplace_of(one: ObservedRun) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sizes of the noise, and how far the neighbours move it, where they move it at all."""
    sizes, moved = [np.zeros(0)], [np.zeros(0)]
    for made, a, b in zip(
        one.transcript.releases, one.present.releases, one.absent.releases, strict=True
    ):
        if _law(made) == LAPLACE:
            apart, scale = np.abs(a.exact - b.exact), made.mechanism.scale
            sizes.append((np.abs(made.noisy - made.exact) / scale)[apart > 0.0])
            moved.append(apart[apart > 0.0] / scale)
    return np.concatenate(sizes), np.concatenate(moved)


def _joined(one: ObservedRun, k: int) -> bool:
    return not np.array_equal(one.transcript.releases[k].exact, one.absent.releases[k].exact)


def _answers(runs: Sequence[ObservedRun], k: int, alpha: float) -> tuple[Any, Any] | None:
    """Probabilities of the answers at the place where neighbours differ: on both sides.

    Every record that is there answers by the same coin: all of their answers are counted.
    """
    first, second = (t.releases[k].exact for t in (runs[0].present, runs[0].absent))
    classes = runs[0].transcript.releases[k].mechanism.classes
    answers = [one.transcript.releases[k] for one in runs]
    known = sum(int((r.exact >= 0).sum()) for r in answers)
    true = sum(int(((r.exact >= 0) & (r.noisy == r.exact)).sum()) for r in answers)
    truth = max(clopper_pearson(true, max(known, 1), alpha)[0], 1.0 / classes)

    def chances(category: int) -> NDArray[np.float64]:
        if category < 0:  # no record: drawn alike from all
            return np.full(classes, 1.0 / classes)
        found = np.full(classes, max((1.0 - truth) / (classes - 1), 1e-300))
        found[category] = truth
        return found

    # a shuffle puts the record elsewhere in every run; what differs is one place in all of them
    places = np.flatnonzero(first != second)
    if not len(places):
        return None
    return chances(int(first[places[0]])), chances(int(second[places[0]]))


def _up(x: float) -> float:
    """Rounded up to four digits, so that equal steps are one entry of the account."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 3)
    return math.ceil(x / unit) * unit
