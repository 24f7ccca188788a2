"""Accountants by moments: the ones that the papers compare with. All are proofs, none is tight.

With L = log dP/dQ under P and K(t) = log E[e^(t L)], which adds up over releases, every order t > 0
gives a bound:

    moments   epsilon = (K(t) + log(1/delta)) / t,  t = 1 .. 32
    Renyi     epsilon = (K(t) + log(1/delta) + t log t - (t+1) log(t+1)) / t

(Abadi et al. 2016, theorem 2; Canonne, Kamath and Steinke 2020, proposition 12.) For Gaussian
releases K(t) = mu^2 t (t+1) / 2, and the best t of the first formula gives the closed form of the
PATE paper, epsilon = mu^2/2 + mu sqrt(2 log(1/delta)) (`privet.methods.pate.published_noise`).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, xlog1py

from privet import _check
from privet.accounting.accountant_choice import _failure
from privet.accounting.poisson_sampling import SampledGaussian
from privet.accounting.privacy_loss import Array, Direction, LossPart, PrivacyLoss
from privet.accounting.renyi_curve import RenyiCurve
from privet.guarantee import Adjacency, Guarantee, Standing

ORDERS = np.arange(1, 33)
"""The orders of the classical moments accountant (Abadi et al. 2016)."""
_CHUNK = 4096
"""Steps at a time: 1 MB for each table of terms."""


def log_moment(q: Array, z: Array, order: int) -> Array:
    """log E[e^(t L)] of one Poisson-sampled Gaussian step, t a whole number, the worse direction.

    With n = t + 1, remove: sum_k C(n, k) (1-q)^(n-k) q^k e^(k (k-1) / (2 z^2)). The binomial
    weights add up to 1, so this is 1 + sum_{k >= 2} weight_k (e^(k (k-1) / (2 z^2)) - 1), which
    keeps its digits for a small q. The other direction is never larger (Mironov, Talwar and Zhang
    2019, theorem 5; tested).

    >>> log_moment(np.array([1.0]), np.array([2.0]), 3).tolist()  # q = 1: t (t+1) / (2 z^2)
    [1.5]
    """
    n = order + 1
    k = np.arange(2, n + 1)[None, :]
    q, z = q[:, None], z[:, None]
    choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    with np.errstate(divide="ignore"):
        weight = choose + xlog1py(n - k, -q) + k * np.log(q)
    exponent = k * (k - 1) / (2.0 * z * z)
    terms = weight + exponent + np.log(-np.expm1(-exponent))
    top = np.max(terms, axis=1)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(np.logaddexp(0.0, top + np.log(np.sum(np.exp(terms - top[:, None]), axis=1))))


def _log_moments(part: LossPart) -> Array:
    """K at the orders 1 .. 32, the worse direction."""
    if isinstance(part, SampledGaussian) and part.adjacency.of_losses is Adjacency.ADD_REMOVE:
        q, z, n = part.groups
        total = np.zeros(len(ORDERS))
        for i in range(0, len(q), _CHUNK):
            now = slice(i, i + _CHUNK)
            total += [float(np.dot(n[now], log_moment(q[now], z[now], int(t)))) for t in ORDERS]
        return total
    both = [part.log_mgf(ORDERS.astype(float), d) for d in Direction]
    return np.maximum(both[0], both[1])


def moments_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """The classical moments accountant, for any schedule.

    **Guarantee**: an upper bound, min over t = 1 .. 32 of (K(t) + log(1/delta)) / t; never below 0.
    **Assumes**: what the loss assumes. Infinite where a part has no finite moment.

    >>> loss = SampledGaussian(sample_rate=0.01, noise_multiplier=4.0, steps=10_000)
    >>> round(moments_epsilon(loss, 1e-5), 2)
    1.26
    """
    rest, failure = _without_failure(loss, delta)
    if failure:
        return math.inf
    if _free(loss):
        return 0.0
    k = np.zeros(len(ORDERS))
    for part in loss.parts:
        k = k + _log_moments(part)
    bounds = (k - math.log(rest)) / ORDERS
    best = float(np.min(np.nan_to_num(bounds, nan=math.inf)))
    return max(0.0, best)


def renyi_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """The Renyi accountant with the best real order and the best known conversion.

    **Guarantee**: an upper bound, the minimum over all t > 0 in the worse direction (found
    numerically; any t is sound).
    **Assumes**: what the loss assumes.

    >>> loss = SampledGaussian(sample_rate=0.01, noise_multiplier=4.0, steps=10_000)
    >>> 0.947 < renyi_epsilon(loss, 1e-5) < moments_epsilon(loss, 1e-5)
    True
    """
    rest, failure = _without_failure(loss, delta)
    if failure:
        return math.inf
    if _free(loss):
        return 0.0
    # the moments of a sampled Gaussian are never larger in the other direction (see `log_moment`)
    one_way = all(isinstance(p, SampledGaussian) or p.symmetric for p in loss.parts)
    worst = 0.0
    for direction in (Direction.REMOVE,) if one_way else Direction:
        ceiling = math.fsum(p.supremum(direction) for p in loss.parts)
        if ceiling > worst:
            value, _ = RenyiCurve(parts=loss.parts, direction=direction).epsilon(math.log(rest))
            worst = max(worst, min(value, ceiling))
    return worst


def moments_guarantee(loss: PrivacyLoss, delta: float) -> Guarantee:
    """The guarantee that `moments_epsilon` proves."""
    theorem = "moments accountant (Abadi et al. 2016, theorem 2; orders 1 to 32)"
    return _proved(loss, delta, moments_epsilon(loss, delta), theorem)


def renyi_guarantee(loss: PrivacyLoss, delta: float) -> Guarantee:
    """The guarantee that `renyi_epsilon` proves."""
    theorem = "Renyi accountant (Mironov 2017; conversion of Canonne, Kamath and Steinke 2020)"
    return _proved(loss, delta, renyi_epsilon(loss, delta), theorem)


def _free(loss: PrivacyLoss) -> bool:
    """Whether nothing can be lost at all."""
    return all(p.supremum(d) == 0.0 for p in loss.parts for d in Direction)


def _without_failure(loss: PrivacyLoss, delta: float) -> tuple[float, bool]:
    """delta less what parts with an unbounded loss take of it, and whether they take all."""
    delta = _check.open_unit("delta", delta)
    failure = _failure(loss.parts)
    return (delta - failure) / (1.0 - failure) if failure < delta else delta, failure >= delta


def _proved(loss: PrivacyLoss, delta: float, epsilon: float, theorem: str) -> Guarantee:
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        adjacency=loss.adjacency,
        standing=Standing.PROVED if math.isfinite(epsilon) else Standing.NONE,
        theorem=theorem,
    )
