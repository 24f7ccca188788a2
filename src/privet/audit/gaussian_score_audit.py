"""Audits of Gaussian releases from all of their scores, with no event to choose.

The likelihood ratio of two normal distributions is linear, so its scores are normal on both sides
with one variance, and mu = (mean in - mean out) / deviation is all there is to know. With n draws a
side T = (difference of means) / (s sqrt(2 / n)) is non-central t with shift mu sqrt(n / 2), which
gives an exact limit of mu; counting one event throws half of that knowledge away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privet import _check
from privet.audit.epsilon_lower_bounds import mu_epsilon
from privet.audit.single_release_audit import Draw, SampledAudit, Scores, scores_of
from privet.errors import InvalidArgument
from privet.noise import Source

_SHAPE = 6.0
"""Standard errors of skewness and kurtosis beyond which scores are refused: not normal."""


def normal_shift_bound(inside: Scores, outside: Scores, *, alpha: float) -> float:
    """A lower bound of mu from scores that are normal with one variance; at least 0.

    The shift at which T would be as large as it is with probability alpha.

    **Assumes** normal scores with one variance; what is clearly otherwise is refused.

    >>> from privet.noise import seeded
    >>> a, b = seeded(1).gaussian(10_000) + 1.0, seeded(2).gaussian(10_000)
    >>> 0.95 < normal_shift_bound(a, b, alpha=0.05) < 1.0
    True
    """
    n, m = len(inside), len(outside)
    if min(n, m) < 100:
        raise InvalidArgument("scores", min(n, m), "at least 100 on either side")
    if not (np.isfinite(inside).all() and np.isfinite(outside).all()):
        raise InvalidArgument("scores", "NaN or infinity among them", "finite scores")
    apart = float(inside.mean() - outside.mean())
    left = ((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum()
    s = math.sqrt(left / (n + m - 2))
    if s <= 1e-12 * abs(apart):
        return math.inf if apart > 0.0 else 0.0
    for scores in (inside, outside):
        check_normal_shape(scores)
    unit = math.sqrt(1.0 / n + 1.0 / m)
    t = apart / (s * unit)
    if t <= 0.0:
        return 0.0
    shift = float(special.nctdtrinc(n + m - 2, 1.0 - alpha, t))
    return max(shift * unit, 0.0) if math.isfinite(shift) else 0.0


def shift_one_run_bound(
    scores: Scores, included: NDArray[np.bool_], *, delta: float, alpha: float
) -> float:
    """epsilon(delta) from the scores of all canaries of one training: none is thresholded.

    **Assumes** scores that are normal with one variance and independent of each other given the
    coins: canaries that each own a coordinate, in a training without random samples. The attacker
    sees every noisy sum on these coordinates. No number of canaries limits it.

    The use of all scores is that of Agrawal et al., "Let's Ask Gauss" (2026, arXiv 2606.12733); the
    bound is that of `normal_shift_bound`, exact at any number.

    >>> from privet.noise import seeded
    >>> coins = seeded(0).uniform(4000) < 0.5
    >>> found = shift_one_run_bound(seeded(1).gaussian(4000) + coins, coins, delta=1e-5, alpha=0.05)
    >>> 3.8 < found < 4.5  # true is 4.38
    True
    """
    mu = normal_shift_bound(scores[included], scores[~included], alpha=alpha)
    return mu_epsilon(mu, delta)


def check_normal_shape(scores: Scores) -> None:
    """Raise where skewness or kurtosis is far from that of a normal sample."""
    x = (scores - scores.mean()) / scores.std()
    n = len(x)
    # of n normal numbers they vary by 6/n and 24/n
    skewness = float((x**3).mean()) / math.sqrt(6.0 / n)
    kurtosis = (float((x**4).mean()) - 3.0) / math.sqrt(24.0 / n)
    if max(abs(skewness), abs(kurtosis)) > _SHAPE:
        raise InvalidArgument(
            "scores",
            f"skewness {skewness:.1f} and kurtosis {kurtosis:.1f} standard errors from normal",
            "those of a Gaussian release",
            "OneShotAudit assumes no shape",
        )


@final
@dataclass(frozen=True, kw_only=True)
class NormalShiftAudit(SampledAudit):
    """An audit of a Gaussian release that is made once: `trials` draws a side, no threshold.

    **Guarantee** `Finding.audited` exceeds the true epsilon with probability at most
    1 - confidence, for scores that are normal with one variance (parametric).

    >>> from privet.audit import gaussian_score
    >>> from privet.noise import seeded
    >>> def draw(value, sigma=2.0):
    ...     return lambda n, rng: gaussian_score(
    ...         value + sigma * rng.gaussian((n, 1)), present=1.0, absent=0.0, scale=2.0)
    >>> found = NormalShiftAudit(trials=20_000, delta=1e-5).run(
    ...     what="a count", with_record=draw(1.0), without_record=draw(0.0),
    ...     control=(draw(1.0, 0.0), draw(0.0, 0.0)), claimed=None, proved=1.99, rng=seeded(0))
    >>> 1.8 < found.audited <= 1.99, found.verdict.value
    (True, 'consistent')
    """

    delta: float = 1e-5
    ceiling: ClassVar[float] = math.inf  # no number of draws limits it
    method: ClassVar[str] = "shift of normal likelihood ratios over their deviation"
    parametric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.count("trials", self.trials, minimum=100)
        _check.open_unit("delta", self.delta)

    def epsilon(self, with_record: Draw, without_record: Draw, rng: Source) -> float:
        """The lower bound of epsilon from fresh draws."""
        inside = scores_of(with_record, self.trials, rng.child("in"))
        outside = scores_of(without_record, self.trials, rng.child("out"))
        mu = normal_shift_bound(inside, outside, alpha=self.alpha)
        return mu_epsilon(mu, self.delta)
