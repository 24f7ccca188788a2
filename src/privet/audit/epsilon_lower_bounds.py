"""Lower bounds of epsilon from hits and trials, by Clopper-Pearson limits of both rates."""

from __future__ import annotations

import math

from scipy import special

from privet import _check
from privet.accounting import Gaussian
from privet.errors import InvalidArgument


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
