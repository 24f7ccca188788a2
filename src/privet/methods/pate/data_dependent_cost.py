"""What votes cost *given these votes*: often far less, but itself a secret, so never a guarantee.

Where teachers agree, the noisy winner hardly depends on any one of them. Theorem 6 of Papernot et
al. (2018) turns that into a smaller Renyi divergence from the data set at hand to its neighbours.
The number depends on the private votes without noise: it may guide who owns the data, it must not
be published as it is, and no ledger is charged by it. That is why it has a type of its own here.

Symbols: lambda the order, q the probability that the released answer is not the likely one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from privet import _check
from privet.errors import InvalidArgument

Array = NDArray[np.float64]
# the best order is about 1 + sqrt(2 log(1/delta)) / mu: a few for large losses, 10^4 for tiny ones
ORDERS = np.concatenate(
    [np.arange(1.5, 10.0, 0.25), np.arange(10.0, 100.0), np.geomspace(100, 1e4)]
)


@final
@dataclass(frozen=True, kw_only=True)
class DataDependentCost:
    """An epsilon that holds for these votes only. Secret; not a `Guarantee`, by design.

    `independent` is the same accounting without looking at the votes, to compare with.
    """

    epsilon: float
    independent: float
    delta: float
    queries: int

    def __str__(self) -> str:
        return (
            f"data-dependent cost {self.epsilon:.4g} at delta {self.delta:.3g} for {self.queries} "
            f"queries (secret: a function of the votes; {self.independent:.4g} whatever the votes)"
        )


def log_chance_of_another(counts: Any, noise: float) -> Array:
    """log q of each query: an upper bound of the chance that GNMax does not release the plurality.

    q <= sum_{i != i*} Phi(-(n_i* - n_i) / (sqrt(2) sigma)), Papernot et al. (2018), proposition 7.

    >>> np.exp(log_chance_of_another([[90, 10]], 40.0)).round(4).tolist()
    [0.0786]
    """
    n = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    best = n.argmax(axis=1)
    gaps = np.take_along_axis(n, best[:, None], axis=1) - n
    terms = log_ndtr(-gaps / (math.sqrt(2.0) * _check.positive("noise", noise)))
    np.put_along_axis(terms, best[:, None], -np.inf, axis=1)
    return np.asarray(np.minimum(logsumexp(terms, axis=1), math.log1p(-1.0 / n.shape[1])))


def renyi_cost(log_q: float, sigma: float, orders: Array = ORDERS) -> Array:
    """Renyi divergences of a mechanism with (lambda, lambda / sigma^2) whose other answer has
    chance q.

    With mu_2 = sigma sqrt(log 1/q), mu_1 = mu_2 + 1, e_i = mu_i / sigma^2 and for lambda <= mu_1:

        (1/(lambda - 1)) log( (1-q) A^(lambda-1) + q B^(lambda-1) ),
        A = (1-q) / (1 - (q e^{e_2})^{(mu_2-1)/mu_2}),  B = e^{e_1} / q^{1/(mu_1-1)},

    where the conditions of the theorem hold; elsewhere lambda / sigma^2. Theorem 6 and
    proposition 10.
    """
    plain = orders / sigma**2
    if not -math.inf < log_q < 0.0:
        return np.zeros_like(plain) if log_q == -math.inf else plain
    mu2 = sigma * math.sqrt(-log_q)
    mu1 = mu2 + 1.0
    e1, e2 = mu1 / sigma**2, mu2 / sigma**2
    if mu2 <= 1.0 or log_q + e2 >= 0.0:
        return plain
    limit = (mu2 - 1.0) * e2 - mu2 * (math.log1p(1.0 / (mu1 - 1.0)) + math.log1p(1.0 / (mu2 - 1.0)))
    if log_q > limit:
        return plain
    log_p = _log1mexp(log_q)
    log_a = log_p - _log1mexp((log_q + e2) * (mu2 - 1.0) / mu2)
    log_b = e1 - log_q / (mu1 - 1.0)
    rest = orders - 1.0
    better = np.logaddexp(log_p + rest * log_a, log_q + rest * log_b) / rest
    return np.where(orders <= mu1, np.minimum(plain, better), plain)


def gnmax_cost(counts: Any, *, noise: float, delta: float) -> DataDependentCost:
    """What GNMax with `noise` cost for these (queries, classes) counts.

    >>> counts = np.tile([200, 30, 20], (100, 1))
    >>> cost = gnmax_cost(counts, noise=40.0, delta=1e-5)
    >>> cost.epsilon < 0.6 * cost.independent
    True
    """
    return _cost([(log_chance_of_another(counts, noise), noise)], delta=delta)


def confident_cost(
    counts: Any, answered: Any, *, threshold: float, check_noise: float, noise: float, delta: float
) -> DataDependentCost:
    """What confident GNMax cost: the checks of all queries and the answers that were given.

    A check is a Gaussian release of sensitivity 1 with two outcomes: the theorem applies with
    sigma = sqrt(2) sigma_1, so that lambda / sigma^2 = lambda / (2 sigma_1^2).
    """
    n = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    mask = np.asarray(answered, dtype=np.bool_)
    if mask.shape != (len(n),):
        raise InvalidArgument("answered", mask.shape, f"a truth value for each of {len(n)} queries")
    above = (n.max(axis=1) - threshold) / _check.positive("check_noise", check_noise)
    rare = np.minimum(log_ndtr(above), log_ndtr(-above))
    parts = [(rare, math.sqrt(2.0) * check_noise)]
    if mask.any():
        parts.append((log_chance_of_another(n[mask], noise), noise))
    return _cost(parts, delta=delta)


def _cost(parts: list[tuple[Array, float]], *, delta: float) -> DataDependentCost:
    log_inverse = -math.log(_check.open_unit("delta", delta))
    total, plain = np.zeros(len(ORDERS)), np.zeros(len(ORDERS))
    for log_qs, sigma in parts:
        for log_q in log_qs:
            total += renyi_cost(float(log_q), sigma)
        plain += len(log_qs) * ORDERS / sigma**2
    return DataDependentCost(
        epsilon=float(np.min(total + log_inverse / (ORDERS - 1.0))),
        independent=float(np.min(plain + log_inverse / (ORDERS - 1.0))),
        delta=delta,
        queries=len(parts[0][0]),
    )


def _log1mexp(x: float) -> float:
    """log(1 - e^x) for x < 0."""
    return math.log(-math.expm1(x)) if x > -math.log(2.0) else math.log1p(-math.exp(x))
