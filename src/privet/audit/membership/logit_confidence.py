"""How sure a model is of the true label, on a scale where LiRA's Gaussians fit.

phi(x, y) = log p_y - log sum_{j != y} p_j, the logit of p_y. Computed from the other classes'
probabilities and not from 1 - p_y, which rounds to nothing for the very records that were
memorised. p_y = 1 / (1 + e^-phi), so phi is all that the attacks with reference models need.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from privet import _check
from privet.audit.membership import input_checks
from privet.audit.membership.input_checks import Floats

SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
"""Probabilities of 0 count as this at least, about 1e-45."""


def confidence(probabilities: Any, labels: Any, *, floor: float | None = None) -> Floats:
    """phi of each record from probabilities; those below `floor` count as `floor`.

    Otherwise a probability of 0 would look like complete certainty where answers are rounded: by a
    remote service to three digits, by a forest of 50 trees to fiftieths. Without a `floor` it is
    half the least probability above 0 that is among the answers.

    Carlini, Chien, Nasr, Song, Terzis and Tramer, *Membership inference attacks from first
    principles* (2022), section VI.A.

    >>> confidence([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]], [0, 1]).round(3).tolist()
    [0.0, 2.197]
    """
    p = input_checks.probabilities("probabilities", probabilities)
    if floor is None:
        floor = max(SMALLEST, 0.5 * float(p[p > 0.0].min()))
    floor = _check.positive("floor", floor)
    y = input_checks.labels("labels", labels, *p.shape)
    here = np.arange(len(p))
    own = p[here, y].copy()
    others = p.copy()
    others[here, y] = 0.0
    phi: Floats = np.log(np.maximum(own, floor)) - np.log(np.maximum(others.sum(axis=1), floor))
    return phi


def confidence_of_logits(logits: Any, labels: Any, *, temperature: float = 1.0) -> Floats:
    """phi of each record from logits: no softmax, so nothing is rounded away.

    `temperature` divides them first: phi of softmax(z / T), the temperature of RMIA as LeakPro and
    Privacy Meter have it (`read=partial(confidence_of_logits, temperature=2.0)`).

    >>> confidence_of_logits([[50.0, 0.0, -3.0]], [0]).round(3).tolist()
    [49.951]
    """
    z = input_checks.answers("logits", logits) / _check.positive("temperature", temperature)
    y = input_checks.labels("labels", labels, *z.shape)
    here = np.arange(len(z))
    own = z[here, y].copy()
    z[here, y] = -np.inf
    phi: Floats = own - special.logsumexp(z, axis=1)
    return phi
