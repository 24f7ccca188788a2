"""Confidence limits of what an attack reached, from the scores of members and non-members.

Symbols: n1 members, n0 non-members, alpha = 1 - confidence, ROC(f) the largest true-positive rate
of a rule "score > t" whose true false-positive rate is at most f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import special, stats

from privet.audit.likelihood_ratio import clopper_pearson
from privet.audit.membership._rows import Floats


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its confidence limits.

    >>> print(Estimate(value=0.5, low=0.4, high=0.61))
    0.5 [0.4, 0.61]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def rate(hits: int, trials: int, alpha: float) -> Estimate:
    """A rate with exact (Clopper-Pearson) limits.

    >>> print(rate(5, 100, 0.05))
    0.05 [0.0164, 0.113]
    """
    low, high = clopper_pearson(hits, trials, alpha / 2.0)
    return Estimate(value=hits / trials, low=low, high=high)


def area(inside: Floats, outside: Floats, alpha: float) -> Estimate:
    """The area under the ROC curve, P[member scores higher] + P[they tie] / 2.

    Limits: DeLong's variance on the logit scale. It is 0 when all pairs of a member and another
    compare alike (complete separation, or one score for all); then m = min(n1, n0) disjoint pairs
    give exact limits: another outcome has a probability of at most u = 1 - (alpha/2)^(1/m), so the
    area is between value (1 - u) and value + u (1 - value).

    **Assumes** enough records for the area to be nearly normal (some tens a side; tested).

    DeLong, DeLong and Clarke-Pearson, *Biometrics* 44 (1988), by ranks as Sun and Xu (2014).

    >>> print(area(np.array([2.0, 3.0, 4.0, 5.0]), np.array([1.0, 2.5, 0.0, 3.5]), 0.05))
    0.812 [0.329, 0.975]
    """
    n1, n0 = len(inside), len(outside)
    both = stats.rankdata(np.concatenate([inside, outside]))
    over_outside = (both[:n1] - stats.rankdata(inside)) / n0  # share of non-members below each
    under_inside = 1.0 - (both[n1:] - stats.rankdata(outside)) / n1
    value = float(over_outside.mean())
    variance = (over_outside.var(ddof=1) / n1 if n1 > 1 else math.inf) + (
        under_inside.var(ddof=1) / n0 if n0 > 1 else math.inf
    )
    if variance == 0.0 or value in (0.0, 1.0):
        u = 1.0 - (alpha / 2.0) ** (1.0 / min(n1, n0))
        low, high = value * (1.0 - u), value + u * (1.0 - value)
    elif math.isinf(variance):
        low, high = 0.0, 1.0
    else:
        width = -special.ndtri(alpha / 2.0) * math.sqrt(variance) / (value * (1.0 - value))
        low, high = (float(special.expit(special.logit(value) + s * width)) for s in (-1, 1))
    return Estimate(value=value, low=low, high=high)


def at_false_positive_rate(inside: Floats, outside: Floats, f: float, alpha: float) -> Estimate:
    """ROC(f): the true-positive rate at a false-positive rate of f.

    The value is read off the empirical curve: at most floor(f n0) non-members above the threshold.
    That threshold was chosen on the scores it is reported for, so plain limits of the rate would be
    too narrow. These are exact for any law of the scores: the share of all non-members above the
    k-th largest of n0 scores is Beta(k, n0 - k + 1), so two order statistics t' > t have
    FPR(> t') <= f and FPR(>= t) > f, each but for alpha/4; members are independent of them, so
    Clopper-Pearson limits at alpha/4 of the rates above t' and from t on enclose ROC(f).

    **Guarantee** [low, high] holds ROC(f) with probability 1 - alpha, for independent records; low
    is 0 where n0 non-members cannot show so small a rate (f n0 below about 4).

    >>> rng = np.random.default_rng(0)
    >>> print(at_false_positive_rate(rng.normal(2, 1, 5000), rng.normal(0, 1, 5000), 0.01, 0.05))
    0.374 [0.321, 0.418]
    """
    n1, n0 = len(inside), len(outside)
    falling = np.sort(outside)[::-1]
    members = np.sort(inside)

    def above(t: float) -> int:
        return n1 - int(np.searchsorted(members, t, side="right"))

    allowed = math.floor(f * n0 + 1e-9)
    value = above(falling[allowed]) / n1 if allowed < n0 else 1.0
    quarter = alpha / 4.0
    k = int(stats.binom.ppf(quarter, n0, f))  # P[Bin(n0, f) >= k] >= 1 - alpha/4
    low = clopper_pearson(above(falling[k - 1]), n1, quarter)[0] if k >= 1 else 0.0
    k = int(stats.binom.ppf(1.0 - quarter, n0, f)) + 1  # P[Bin(n0, f) < k] >= 1 - alpha/4
    high = 1.0
    if k <= n0:
        from_it_on = n1 - int(np.searchsorted(members, falling[k - 1], side="left"))
        high = clopper_pearson(from_it_on, n1, quarter)[1]
    return Estimate(value=value, low=min(low, value), high=max(high, value))
