"""Audits of one-shot releases: draw with and without the record, and count who can be told apart.

An (epsilon, delta)-private release satisfies P[S | in] <= e^epsilon P[S | out] + delta for every
event S and the other way round. So the rates at which one event happens on the two sides give a
lower bound of epsilon, and with confidence limits of the rates one that is wrong with probability
alpha at most. The event is "the score is at least t": by Neyman and Pearson the best score is the
likelihood ratio. t is fixed before the draws that are counted, on draws of their own.

Symbols: p1 the rate of S with the record, p0 without it, t the threshold, alpha = 1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privet import _check
from privet.audit.drawn import Draw, DrawnAudit, Scores, scores_of
from privet.errors import InvalidArgument
from privet.loss import Gaussian
from privet.noise import Source


def clopper_pearson(hits: int, trials: int, alpha: float) -> tuple[float, float]:
    """Exact one-sided limits of a rate: each is wrong with probability at most alpha.

    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> low, round(high, 4)
    (0.0, 0.0295)
    """
    n = _check.count("trials", trials)
    k = _check.count("hits", hits, minimum=0)
    if k > n:
        raise InvalidArgument("hits", hits, f"at most {n}, the trials")
    alpha = _check.open_unit("alpha", alpha)
    low = 0.0 if k == 0 else float(special.betaincinv(k, n - k + 1, alpha))
    high = 1.0 if k == n else float(special.betaincinv(k + 1, n - k, 1.0 - alpha))
    return low, high


def epsilon_bound(hits_in: int, hits_out: int, trials: int, *, delta: float, alpha: float) -> float:
    """A lower bound of epsilon from how often an event happened with and without the record.

    ln((p1 - delta) / p0) with p1 a lower and p0 an upper limit at alpha/2 each, and the same for
    the complement, which needs no further limits: 1 - p0 and 1 - p1. At least 0.

    **Guarantee** below the true epsilon with probability 1 - alpha, for `trials` independent draws
    a side and an event that was fixed before them.

    >>> round(epsilon_bound(5_000, 1_000, 10_000, delta=0.0, alpha=0.05), 2)
    1.53
    """
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)
    p1, _ = clopper_pearson(hits_in, trials, alpha / 2)
    _, p0 = clopper_pearson(hits_out, trials, alpha / 2)
    return max(_log_ratio(p1 - delta, p0), _log_ratio(1.0 - p0 - delta, 1.0 - p1), 0.0)


def gaussian_bound(
    hits_in: int, hits_out: int, trials: int, *, delta: float, alpha: float
) -> float:
    """The same for a release whose scores are normal on both sides: far sharper, but parametric.

    mu >= Phi^-1(1 - p0) - Phi^-1(1 - p1), then the exact epsilon(delta) of the Gaussian mechanism.

    **Assumes** that the trade-off curve is that of two normal distributions.
    """
    return mu_epsilon(gaussian_mu_bound((hits_in, trials), (hits_out, trials), alpha=alpha), delta)


def gaussian_mu_bound(inside: tuple[int, int], outside: tuple[int, int], *, alpha: float) -> float:
    """A lower bound of mu from (hits, trials) of one event on both sides; at least 0.

    >>> round(gaussian_mu_bound((8_413, 10_000), (1_587, 10_000), alpha=0.05), 2)
    1.94
    """
    alpha = _check.open_unit("alpha", alpha)
    p1, _ = clopper_pearson(*inside, alpha / 2)
    _, p0 = clopper_pearson(*outside, alpha / 2)
    mu = float(special.ndtri(1.0 - p0) - special.ndtri(1.0 - p1))
    return mu if mu > 0.0 and math.isfinite(mu) else 0.0


def mu_epsilon(mu: float, delta: float) -> float:
    """epsilon(delta) of a Gaussian release with sensitivity mu over noise; 0 for mu = 0.

    >>> mu_epsilon(0.0, 1e-5), round(mu_epsilon(1.0, 1e-5), 2), mu_epsilon(math.inf, 1e-5)
    (0.0, 4.38, inf)
    """
    if mu <= 1e-12:
        return 0.0
    return Gaussian(mu=mu).epsilon(delta) if math.isfinite(mu) else math.inf


Bound = Callable[..., float]


@final
@dataclass(frozen=True, kw_only=True)
class OneShotAudit(DrawnAudit):
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
        """What it reports when every draw is told apart."""
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


def _log_ratio(above: float, below: float) -> float:
    if above <= 0.0:
        return 0.0
    return math.inf if below <= 0.0 else math.log(above / below)


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
