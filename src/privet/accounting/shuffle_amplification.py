"""Privacy amplification by shuffling: what a local epsilon becomes behind a trusted shuffler."""

from __future__ import annotations

import math

from privet import _check
from privet.errors import Unattainable


def shuffled_epsilon(epsilon: float, *, records: int, delta: float) -> float:
    """What a local epsilon becomes when a trusted party shuffles the noisy records.

    With e0 the local budget, n records and e0 <= log(n / (16 log(4/delta))),
        x = 8 sqrt(e^e0 log(4/delta) / n) + 8 e^e0 / n,
        epsilon = log(1 + x (1 - e^-e0) / (1 + e^-e0 / (1 + x))),
    at `delta`, replace-one. A separate account: nothing in privet shuffles for you, and who sees
    the records before they are shuffled sees local privacy only. The condition and the second
    factor are those of the authors' published code, a little weaker than theorem 3.1.

    >>> round(shuffled_epsilon(1.0, records=1_000_000, delta=1e-6), 4)
    0.0238

    Feldman, McMillan and Talwar, "Hiding Among the Clones" (2021), theorem 3.1.
    """
    e0 = _check.positive("epsilon", epsilon)
    n, delta = _check.count("records", records), _check.open_unit("delta", delta)
    if e0 > math.log(n / (16.0 * math.log(4.0 / delta))):
        most = n / (16.0 * math.log(4.0 / delta))
        limit = math.log(most) if most > 1.0 else 0.0
        raise Unattainable(
            f"shuffling {n} records is known to amplify a local epsilon of at most {limit:.4g} at "
            f"delta {delta:g}, not {e0:g}"
        )
    x = 8.0 * math.sqrt(math.exp(e0) * math.log(4.0 / delta) / n) + 8.0 * math.exp(e0) / n
    factor = -math.expm1(-e0) / (1.0 + math.exp(-e0) / (1.0 + x))
    # 32 roundings: six functions, and the sums and products of the formula
    return min(e0, math.log1p(factor * x) * (1.0 + 2.0**-48))
