"""The error of cutting a logistic loss off after order two: as two papers print it, and right."""

from __future__ import annotations

import math

from privet.sensitivity.polynomial_loss import taylor_error


def truncation_error(outputs: int) -> dict[str, float]:
    """Lemma 7 (AdLM) and Lemma 4 (dPA) for |z| <= 1: M (e^2 + 2e - 1) / (e (1 + e)^2), and M / 192.

    >>> {k: round(v, 4) for k, v in truncation_error(10).items()}
    {'printed': 3.1466, 'right': 0.0521}
    """
    e = math.e
    printed = outputs * (e * e + 2.0 * e - 1.0) / (e * (1.0 + e) ** 2)
    return {"printed": printed, "right": outputs * taylor_error(1.0)}
