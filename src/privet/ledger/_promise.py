"""What a ledger may promise for everything charged to it, and on which premises."""

from __future__ import annotations

import math

from privet import loss as losses
from privet import premises
from privet.guarantee import Guarantee, Standing
from privet.ledger._chain import Terms
from privet.loss import PrivacyLoss


def promise(terms: Terms, total: PrivacyLoss, epsilon: float) -> Guarantee:
    """The guarantee of `total`, which is `epsilon` at the delta of `terms`."""
    return Guarantee(
        epsilon=epsilon,
        delta=terms.cap_delta,
        adjacency=terms.adjacency,
        unit=terms.unit,
        standing=Standing.PROVED if math.isfinite(epsilon) else Standing.NONE,
        theorem="composition of all charged losses",
        premises=(
            premises.UNDER_CAP,
            premises.ALL_CHARGED,
            premises.LOSSES_BOUND,
            *(() if is_filter(total, terms.cap_delta) else (premises.NOT_ADAPTIVE,)),
        ),
    )


def is_filter(total: PrivacyLoss, delta: float) -> bool:
    """Whether the cap holds even when each loss is chosen after seeing the releases before it.

    Composition theorems fix the losses beforehand. Choosing them on the way is known to cost
    nothing extra for sums of pure epsilons at delta = 0 (Rogers, Roth, Ullman and Vadhan 2016), for
    Gaussian losses (Smith and Thakurta 2022) and for zero-concentrated ones (Feldman and Zrnic
    2021); for exact composition of other losses it is not.

    >>> from privet.loss import Gaussian, Pure
    >>> is_filter(Gaussian(mu=1.0), 1e-5)
    True
    >>> is_filter(Gaussian(mu=1.0) + Pure(epsilon_each=1.0), 1e-5)
    False
    """
    kinds = {type(part) for part in total.parts}
    if delta == 0.0 and kinds <= {losses.Pure, losses.Laplace}:
        return True
    return kinds <= {losses.Gaussian} or kinds <= {losses.ZCDP}
