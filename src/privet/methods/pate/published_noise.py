"""The noise of the PATE paper: its sigma for N answers by its RDP bound, and its claim."""

from __future__ import annotations

import math

from privet import _check
from privet.guarantee import Guarantee, Standing, Unit
from privet.methods.pate.shard_charges import REPLACE_ONE


def concentrated_epsilon(ratio: float, delta: float) -> float:
    """epsilon = mu^2/2 + mu sqrt(2 log(1/delta)) for Gaussian releases: the PATE paper's RDP bound.

    **Guarantee**: an upper bound of the exact epsilon for mu^2 = sum of (sensitivity / noise)^2.
    **Assumes**: the sensitivity is enforced (`privet.sensitivity`). `privet.accounting.Gaussian` is
    tighter.

    >>> round(concentrated_epsilon(0.25, 1e-5), 4)
    1.2309
    """
    mu = _check.non_negative("ratio", ratio)
    log_inverse = -math.log(_check.open_unit("delta", delta))
    return mu * mu / 2.0 + mu * math.sqrt(2.0 * log_inverse)


def concentrated_noise(
    *, sensitivity: float, epsilon: float, delta: float, releases: int = 1
) -> float:
    """sigma = Delta sqrt(N) (sqrt(log 1/delta + epsilon) + sqrt(log 1/delta)) / (sqrt(2) epsilon).

    The PATE paper's noise for N answers: Delta = 2 / K for K teachers and targets in the unit ball
    (its autoencoder form, sqrt(2 N) (...) / (K epsilon)), Delta = sqrt(d) / K for its PCA form.

    >>> round(concentrated_noise(sensitivity=2 / 8, releases=80, epsilon=8.0, delta=1e-3), 4)
    1.2826
    """
    big = _check.positive("sensitivity", sensitivity) * math.sqrt(
        _check.count("releases", releases)
    )
    e = _check.positive("epsilon", epsilon)
    log_inverse = -math.log(_check.open_unit("delta", delta))
    return big * (math.sqrt(log_inverse + e) + math.sqrt(log_inverse)) / (math.sqrt(2.0) * e)


def published_claim(*, epsilon: float, delta: float) -> Guarantee:
    """The paper's own statement for its own noise."""
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        adjacency=REPLACE_ONE,
        unit=Unit.SHARD,
        standing=Standing.CLAIMED,
        theorem="PATE for high-dimensional targets (Fay, Sjoelund and Oechtering 2020), prop. 1, 2",
    )
