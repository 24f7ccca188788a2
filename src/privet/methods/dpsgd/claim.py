"""What the paper states for a schedule: a closed form, reported as a claim and never as a proof."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcinv

from privet import _check
from privet.guarantee import Adjacency, Guarantee, Standing


def closed_form_claim(
    rates: NDArray[np.float64], noise_multipliers: NDArray[np.float64], delta: float
) -> Guarantee:
    """epsilon = u^2 / 2 + sqrt(2) erfcinv(delta) u with u^2 = sum_t q_t^2 / z_t^2.

    In the paper's symbols q_t Delta_t / sigma_t = q_t / z_t, since Delta_t = C_t / (q_t N) and
    z_t = sigma_t q_t N / C_t.

    **Guarantee**: none. It is a sound bound for q = 1 only; for small z and q < 1 it is too low.

    Zhao, *tight privacy-cost computation*, theorem 2 and equation (6).

    >>> round(closed_form_claim(np.full(10_000, 0.01), np.full(10_000, 4.0), 1e-5).epsilon, 4)
    1.1355
    """
    delta = _check.open_unit("delta", delta)
    u = math.sqrt(math.fsum((np.asarray(rates) / np.asarray(noise_multipliers)) ** 2))
    return Guarantee(
        epsilon=u * u / 2.0 + math.sqrt(2.0) * float(erfcinv(delta)) * u,
        delta=delta,
        adjacency=Adjacency.ADD_REMOVE,
        standing=Standing.CLAIMED,
        theorem="closed form of tight-privacy-cost, theorem 2",
    )
