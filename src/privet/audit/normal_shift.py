"""Audits of Gaussian releases from all of their scores, with no event to choose.

The likelihood ratio of two normal distributions is linear, so its scores are normal on both sides
with one variance, and mu = (mean in - mean out) / deviation is all there is to know. With n draws a
side T = (difference of means) / (s sqrt(2 / n)) is non-central t with shift mu sqrt(n / 2), which
gives an exact limit of mu; counting one event throws half of that knowledge away.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import special

from privet import _check
from privet.audit.likelihood_ratio import Draw, Finding, Scores, mu_epsilon
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
    apart = float(inside.mean() - outside.mean())
    left = ((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum()
    s = math.sqrt(left / (n + m - 2))
    if s <= 1e-12 * abs(apart):
        return math.inf if apart > 0.0 else 0.0
    for scores in (inside, outside):
        _refuse_other_shapes(scores)
    unit = math.sqrt(1.0 / n + 1.0 / m)
    t = apart / (s * unit)
    if t <= 0.0:
        return 0.0
    shift = float(special.nctdtrinc(n + m - 2, 1.0 - alpha, t))
    return max(shift * unit, 0.0) if math.isfinite(shift) else 0.0


def _refuse_other_shapes(scores: Scores) -> None:
    x = (scores - scores.mean()) / scores.std()
    n = len(x)
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
class NormalShiftAudit:
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

    trials: int = 100_000
    confidence: float = 0.95
    delta: float = 1e-5

    def __post_init__(self) -> None:
        _check.count("trials", self.trials, minimum=100)
        _check.open_unit("confidence", self.confidence)
        _check.open_unit("delta", self.delta)

    def run(
        self,
        *,
        what: str,
        with_record: Draw,
        without_record: Draw,
        control: tuple[Draw, Draw],
        claimed: float | None,
        proved: float,
        rng: Source,
    ) -> Finding:
        """Draw on both sides, and bound the shift; `control`: the release without its noise."""
        began = time.perf_counter()
        audited = self.epsilon(with_record, without_record, rng.child("audit"))
        return Finding(
            what=what,
            claimed=claimed,
            proved=proved,
            audited=audited,
            ceiling=math.inf,
            control=self.epsilon(*control, rng.child("control")),
            delta=self.delta,
            confidence=self.confidence,
            trials=self.trials,
            method="shift of normal likelihood ratios over their deviation",
            parametric=True,
            seconds=time.perf_counter() - began,
        )

    def epsilon(self, with_record: Draw, without_record: Draw, rng: Source) -> float:
        """The lower bound of epsilon from fresh draws."""
        inside = self._scores(with_record, rng.child("in"))
        outside = self._scores(without_record, rng.child("out"))
        mu = normal_shift_bound(inside, outside, alpha=1.0 - self.confidence)
        return mu_epsilon(mu, self.delta)

    def _scores(self, draw: Draw, rng: Source) -> Scores:
        scores = np.asarray(draw(self.trials, rng), dtype=np.float64)
        if scores.shape != (self.trials,) or not np.isfinite(scores).all():
            raise InvalidArgument("draw", scores.shape, f"{self.trials} finite scores")
        return scores
