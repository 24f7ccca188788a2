"""Audits of a release that is made once: distinguish draws with the record from others.

An (epsilon, delta)-private release satisfies P[S | in] <= e^epsilon P[S | out] + delta for every
event S and the other way round. So the rates at which one event happens on the two sides give a
lower bound of epsilon, and with confidence limits of the rates one that is wrong with probability
alpha at most. The event is "the score is at least t": by Neyman and Pearson the best score is the
likelihood ratio. t is fixed before the draws that are counted, on draws of their own.

Symbols: p1 the rate of S with the record, p0 without it, t the threshold, alpha = 1 - confidence.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.audit.epsilon_lower_bounds import epsilon_bound, gaussian_bound
from privet.audit.finding import Audit, Finding
from privet.errors import InvalidArgument
from privet.noise import Source

Scores = NDArray[np.float64]
Draw = Callable[[int, Source], Scores]
"""So many releases, each with the attacker's score: higher speaks for the record."""


@dataclass(frozen=True, kw_only=True)
class SampledAudit(Audit, ABC):
    """An audit of a release that is made once: `trials` draws a side, and a bound from them."""

    trials: int = 100_000
    delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.count("trials", self.trials)

    def run(
        self,
        *,
        what: str,
        with_record: Draw,
        without_record: Draw,
        control: tuple[Draw, Draw],
        claimed: float | None,
        proved: float,
        rng: Source,
    ) -> Finding:
        """Draw on both sides and bound epsilon.

        `control`: the same two draws from the release without its noise.
        """
        began = time.perf_counter()
        audited = self.epsilon(with_record, without_record, rng.child("audit"))
        without_noise = self.epsilon(*control, rng.child("control"))
        return self.finding(
            what=what,
            claimed=claimed,
            proved=proved,
            audited=audited,
            ceiling=self.ceiling,
            control=without_noise,
            trials=self.trials,
            method=self.method,
            parametric=self.parametric,
            seconds=time.perf_counter() - began,
        )

    @abstractmethod
    def epsilon(self, with_record: Draw, without_record: Draw, rng: Source) -> float:
        """The lower bound of epsilon from fresh draws."""

    @property
    @abstractmethod
    def ceiling(self) -> float:
        """What it reports when every draw is distinguished."""

    @property
    @abstractmethod
    def method(self) -> str:
        """How the bound is made, in words."""

    @property
    @abstractmethod
    def parametric(self) -> bool:
        """Whether the bound also assumes the shape of the noise."""


def scores_of(draw: Draw, n: int, rng: Source) -> Scores:
    """Draw n scores, and refuse another number of them or NaN."""
    scores = np.asarray(draw(n, rng), dtype=np.float64)
    if scores.shape != (n,) or np.isnan(scores).any():
        raise InvalidArgument("draw", scores.shape, f"{n} scores, none of them NaN")
    return scores


Bound = Callable[..., float]


@final
@dataclass(frozen=True, kw_only=True)
class OneShotAudit(SampledAudit):
    """An audit of a release that is made once: `trials` draws a side, one event, fixed beforehand.

    `pilot` draws a side choose the threshold (the one with the best bound at that size) and are
    then thrown away. `control` draws come from the same release without its noise: if they
    do not show an epsilon above the claim, a low result means nothing.

    **Guarantee** `Finding.audited` exceeds the true epsilon with probability at most
    1 - confidence, whatever the release and the score (for `bound=epsilon_bound`).

    >>> from privet.noise import seeded
    >>> def draw(value, noise=1.0):  # Laplace noise of scale 1 on 1 or 0
    ...     return lambda n, rng: laplace_score(
    ...         value + noise * rng.laplace((n, 1)), present=1.0, absent=0.0, scale=1.0)
    >>> finding = OneShotAudit(trials=20_000).run(
    ...     what="a count", with_record=draw(1.0), without_record=draw(0.0),
    ...     control=(draw(1.0, noise=0.0), draw(0.0, noise=0.0)),
    ...     claimed=None, proved=1.0, rng=seeded(0))
    >>> 0.9 < finding.audited <= 1.0, finding.verdict.value
    (True, 'consistent')
    """

    pilot: int = 20_000
    bound: Bound = epsilon_bound

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.count("pilot", self.pilot)

    @property
    def ceiling(self) -> float:
        """What it reports when every draw is distinguished."""
        return self._bound(self.trials, 0)

    @property
    def method(self) -> str:
        """How the bound is made, in words."""
        limits = "normal trade-off curve" if self.parametric else "Clopper-Pearson limits"
        return f"one event of the likelihood ratio, threshold from a pilot, {limits}"

    @property
    def parametric(self) -> bool:
        """Whether the bound also assumes the shape of the noise."""
        return self.bound is gaussian_bound

    def epsilon(self, with_record: Draw, without_record: Draw, rng: Source) -> float:
        """The lower bound of epsilon from fresh draws: a pilot, a threshold, draws to count."""
        t = self.threshold(
            scores_of(with_record, self.pilot, rng.child("pilot", "in")),
            scores_of(without_record, self.pilot, rng.child("pilot", "out")),
        )
        inside = scores_of(with_record, self.trials, rng.child("in"))
        outside = scores_of(without_record, self.trials, rng.child("out"))
        return self._bound(int((inside >= t).sum()), int((outside >= t).sum()))

    def _bound(self, hits_in: int, hits_out: int) -> float:
        return self.bound(hits_in, hits_out, self.trials, delta=self.delta, alpha=self.alpha)

    def threshold(self, inside: Scores, outside: Scores) -> float:
        """The threshold with the best bound on these scores: limits at their own number keep it
        from falling for a few lucky ones far out."""
        # rates to try thresholds at, a fifth apart: what is best there is tested on fresh draws
        levels = np.concatenate([np.geomspace(1e-5, 0.5, 60), 1.0 - np.geomspace(1e-5, 0.5, 60)])
        both = np.sort(np.concatenate([inside, outside]))
        places = np.unique(both[(levels * (len(both) - 1)).astype(np.int64)])
        places = places - 1e-9 * (1.0 + np.abs(places))  # ties of a likelihood ratio are not exact
        inside, outside = np.sort(inside), np.sort(outside)
        best, chosen = -1.0, float(np.median(both))
        for t in places:
            hits = [len(s) - int(np.searchsorted(s, t)) for s in (inside, outside)]
            bound = self.bound(*hits, len(inside), delta=self.delta, alpha=self.alpha)
            if bound > best:
                best, chosen = bound, float(t)
        return chosen


def laplace_score(
    released: NDArray[Any], *, present: Any, absent: Any, scale: Any
) -> NDArray[np.float64]:
    """The log likelihood ratio of releases with Laplace noise, one row each.

    sum_j (|o_j - x'_j| - |o_j - x_j|) / b_j for a record x that is there and x' in its place.
    """
    out = np.asarray(released, dtype=np.float64)
    score: Scores = ((np.abs(out - absent) - np.abs(out - present)) / scale).sum(axis=1)
    return score


def gaussian_score(
    released: NDArray[Any], *, present: Any, absent: Any, scale: Any
) -> NDArray[np.float64]:
    """The log likelihood ratio of releases with Gaussian noise, one row each."""
    out = np.asarray(released, dtype=np.float64)
    apart = np.square(out - absent) - np.square(out - present)
    score: Scores = (apart / (2.0 * np.square(scale))).sum(axis=1)
    return score
