"""The closed form of "tight privacy cost" for DP-SGD: a claim, proved where every rate is 1 only.

The paper treats a Poisson-sampled Gaussian step of rate q as an unsampled one with noise sigma / q.
With u^2 = sum_t q_t^2 Delta_t^2 / sigma_t^2 and c = erfcinv(delta) it states

    epsilon = f(u, delta) = u^2 / 2 + sqrt(2) c u               (its equations 3, 6 and 7)
    u = g(epsilon, delta) = sqrt(2) (sqrt(c^2 + epsilon) - c)   (its equation 8 prints 1 / g)

For q = 1 this is a theorem. For q < 1 it is not: see `privet.accounting.accountant_comparison` and
docs/theory/closed_form.md.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcinv

from privet import _check, premises
from privet.accounting.gaussian import Gaussian
from privet.accounting.poisson_sampling import SampledGaussian
from privet.accounting.privacy_loss import PrivacyLoss
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Standing

THEOREM = "closed form of tight-privacy-cost (theorems 2 and 3)"


def closed_form_epsilon(ratio: float, delta: float) -> float:
    """f(u, delta) = u^2 / 2 + sqrt(2) erfcinv(delta) u: the epsilon that the paper states.

    **Guarantee**: for u = sensitivity / noise of unsampled Gaussian releases an upper bound of the
    exact epsilon; the tail it leaves out has mass delta / 2, so that erfcinv(2 delta) would do.
    **Assumes**: no sampling. With u = q sqrt(T) / z it is only a claim.

    >>> round(closed_form_epsilon(0.01 * 100 / 4, 1e-5), 4)
    1.1355
    """
    return _stated(_check.non_negative("ratio", ratio), _check.open_unit("delta", delta))


def _stated(u: float, delta: float) -> float:
    return u * u / 2.0 + math.sqrt(2.0) * float(erfcinv(delta)) * u


def closed_form_ratio(epsilon: float, delta: float) -> float:
    """g(epsilon, delta) = sqrt(2) (sqrt(c^2 + epsilon) - c): the u for which f gives epsilon.

    Computed as sqrt(2) epsilon / (sqrt(c^2 + epsilon) + c), which keeps its digits for a small
    epsilon.

    >>> u = closed_form_ratio(1.0, 1e-5)
    >>> round(closed_form_epsilon(u, 1e-5), 12)
    1.0
    """
    e = _check.positive("epsilon", epsilon)
    c = float(erfcinv(_check.open_unit("delta", delta)))
    return math.sqrt(2.0) * e / (math.sqrt(c * c + e) + c)


def effective_ratio(loss: PrivacyLoss) -> float:
    """u of a loss: the root of the sum of q_t^2 / z_t^2 (sampled steps) and mu^2 (unsampled ones).

    >>> steps = SampledGaussian(sample_rate=[0.01, 0.02], noise_multiplier=[1.0, 2.0], steps=50)
    >>> round(effective_ratio(steps), 6)
    0.1
    """
    squares: list[float] = []
    for part in loss.parts:
        if isinstance(part, Gaussian):
            squares.append(part.mu**2)
        elif isinstance(part, SampledGaussian):
            q, z, n = part.groups
            double = 4.0 if part.adjacency is Adjacency.REPLACE_ONE else 1.0
            squares.append(double * float(np.sum(n * (q / z) ** 2)))
        else:
            raise InvalidArgument(
                "loss",
                type(part).__name__,
                "made of Gaussian releases; the closed form has no other",
            )
    return math.sqrt(math.fsum(squares))


def unsampled(loss: PrivacyLoss) -> bool:
    """Whether every release sees all of the data, so that the closed form is a theorem."""
    for part in loss.parts:
        if isinstance(part, SampledGaussian):
            if np.any(part.groups[0] < 1.0):
                return False
        elif not isinstance(part, Gaussian):
            return False
    return True


def closed_form_claim(loss: PrivacyLoss, delta: float) -> Guarantee:
    """What the paper states for `loss`, as a claim; proved only where no step is sampled.

    >>> loss = SampledGaussian(sample_rate=0.01, noise_multiplier=4.0, steps=10_000)
    >>> print(closed_form_claim(loss, 1e-5))
    (1.136, 1e-05)-DP per record, add-remove, claimed
    """
    delta = _check.open_unit("delta", delta)
    proved = unsampled(loss)
    sampled_pairs = any(isinstance(p, SampledGaussian) for p in loss.parts)
    rests_on = [premises.EVERY_RATE_ONE if proved else premises.NO_SAMPLING_COST]
    if loss.adjacency is Adjacency.REPLACE_ONE and sampled_pairs:
        rests_on.append(premises.DOUBLED)
    return Guarantee(
        epsilon=_stated(effective_ratio(loss), delta),
        delta=delta,
        adjacency=loss.adjacency,
        standing=Standing.PROVED if proved else Standing.CLAIMED,
        theorem=THEOREM,
        premises=tuple(rests_on),
    )
