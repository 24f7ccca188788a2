"""Lower bounds of epsilon from hits and trials, by Clopper-Pearson limits of both rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privet import _check
from privet.accounting import Gaussian
from privet.errors import InvalidArgument
from privet.noise import Source

Floats = NDArray[np.float64]


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


def all_thresholds_bound(inside: Any, outside: Any, *, delta: float, alpha: float) -> float:
    """A lower bound of epsilon from scores, at the best of many thresholds; nothing is set aside.

    The thresholds are the scores of rank 1, 2, 4, 8 ... of one side, counted from either end. What
    lies beyond the k-th of n has a rate of Beta(k, n - k + 1) whatever their law is, and given the
    threshold the other side's hits are binomial. Each of the two limits of each threshold is wrong
    with probability at most alpha over their number (Bonferroni), so the best bound may be taken.

    **Guarantee** below the true epsilon with probability 1 - alpha, for scores that are independent
    and on each side of one law, higher or lower with the record; ties cost nothing but sharpness.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.laplace(1.0, 1.0, 4000), rng.laplace(0.0, 1.0, 4000)  # epsilon is 1
    >>> round(all_thresholds_bound(a, b, delta=0.0, alpha=0.05), 2)
    0.79
    """
    delta, alpha = _check.delta_or_zero("delta", delta), _check.open_unit("alpha", alpha)
    sides = [np.sort(np.asarray(s, dtype=np.float64).ravel()) for s in (inside, outside)]
    for name, s in zip(("inside", "outside"), sides, strict=True):
        if not len(s) or np.isnan(s).any():
            raise InvalidArgument(name, s.shape, "one score or more, none of them NaN")
    cases = [
        (sign * one, sign * other) for one, other in (sides, sides[::-1]) for sign in (1.0, -1.0)
    ]
    ranks = [2 ** np.arange(len(other).bit_length()) for _, other in cases]
    level = alpha / (2 * sum(len(k) for k in ranks))
    best = 0.0
    for (one, other), k in zip(cases, ranks, strict=True):
        threshold = np.sort(other)[::-1][k - 1]
        rare = special.betaincinv(k, len(other) - k + 1, 1.0 - level)  # beyond it on its own side
        hits = (one[None, :] > threshold[:, None]).sum(axis=1)
        often = special.betaincinv(np.maximum(hits, 1), len(one) - hits + 1, level)
        often = np.where(hits == 0, 0.0, often)
        best = max(
            best,
            *(_log_ratio(float(p - delta), float(q)) for p, q in zip(often, rare, strict=True)),
        )
    return best


def bootstrap_interval(
    statistic: Callable[[Floats, Floats], float],
    inside: Any,
    outside: Any,
    *,
    rng: Source,
    confidence: float = 0.95,
    samples: int = 1000,
) -> tuple[float, float]:
    """Percentiles of a statistic of both sides' scores when each is drawn again with replacement.

    For what has no exact limits of its own, such as a rate at a threshold read off the scores.
    **Assumes** many scores: it is asymptotic, and no lower bound of epsilon.

    >>> from privet.noise import seeded
    >>> draw = np.random.default_rng(0)
    >>> a, b = draw.normal(1.0, 1.0, 400), draw.normal(0.0, 1.0, 400)
    >>> low, high = bootstrap_interval(lambda x, y: x.mean() - y.mean(), a, b, rng=seeded(0))
    >>> round(low, 2), round(high, 2)
    (0.84, 1.11)
    """
    tail = 0.5 * (1.0 - _check.open_unit("confidence", confidence))
    a, b = (np.asarray(s, dtype=np.float64).ravel() for s in (inside, outside))
    values = [
        statistic(
            a[rng.child("inside", k).integers(len(a), len(a))],
            b[rng.child("outside", k).integers(len(b), len(b))],
        )
        for k in range(_check.count("samples", samples, minimum=20))
    ]
    low, high = np.quantile(values, (tail, 1.0 - tail))
    return float(low), float(high)


def gaussian_bound(
    hits_in: int, hits_out: int, trials: int, *, delta: float, alpha: float
) -> float:
    """A lower bound of epsilon for scores that are normal on both sides: sharper, but parametric.

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


def _log_ratio(above: float, below: float) -> float:
    if above <= 0.0:
        return 0.0
    return math.inf if below <= 0.0 else math.log(above / below)
