"""Audits by many training runs: half with a canary, half without, and one event fixed beforehand.

Jagielski, Ullman and Oprea, "Auditing Differentially Private Machine Learning: How Private is
Private SGD?", 2020. A canary put in k times makes a group of k, for which (epsilon, delta)-privacy
gives P[S | in] <= e^(k epsilon) P[S | out] + delta (e^(k epsilon) - 1) / (e^epsilon - 1).

Symbols: k copies, p1 and p0 the rates of the event with and without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from privet import _check
from privet.audit.epsilon_lower_bounds import clopper_pearson, gaussian_mu_bound, mu_epsilon
from privet.audit.finding import Audit, Finding
from privet.audit.single_release_audit import OneShotAudit, Scores
from privet.errors import InvalidArgument

_HIGHEST = 60.0  # e^60 is beyond what any number of runs could show


def group_epsilon(p1: float, p0: float, *, copies: int, delta: float) -> float:
    """The least epsilon of one record for which k copies may have rates p1 (in) and p0 (out).

    >>> round(group_epsilon(0.5, 0.1, copies=1, delta=0.0), 4) == round(math.log(5), 4)
    True
    >>> round(group_epsilon(0.5, 0.1, copies=2, delta=0.0) * 2, 4) == round(math.log(5), 4)
    True
    """
    k, delta = _check.count("copies", copies), _check.delta_or_zero("delta", delta)
    p1, p0 = _check.unit("p1", p1), _check.unit("p0", p0)

    def most(epsilon: float) -> float:
        # delta (1 + e^eps + ... + e^((k-1) eps))
        return math.exp(k * epsilon) * p0 + delta * sum(math.exp(j * epsilon) for j in range(k))

    if p1 <= most(0.0):
        return 0.0
    low, high = 0.0, _HIGHEST / k
    if p1 > most(high):
        return math.inf if p0 <= 0.0 and delta <= 0.0 else high
    while high - low > 1e-10:  # far finer than any number of runs can tell
        middle = 0.5 * (low + high)
        low, high = (middle, high) if p1 > most(middle) else (low, middle)
    return low


@final
@dataclass(frozen=True, kw_only=True)
class ManyRunsAudit(Audit):
    """A bound from the scores of runs with the canary and of runs without it.

    The first half of the runs on either side chooses the threshold, the second is counted.
    `copies`: how often the canary was put in. `gaussian`: read the rates on a normal trade-off
    curve (parametric; mu of k copies is k times that of one).

    **Guarantee** `Finding.audited` exceeds the true epsilon of one record with probability at most
    1 - confidence, for independent runs.

    >>> rng = np.random.default_rng(0)
    >>> inside, outside = rng.laplace(1.0, 1.0, 2000), rng.laplace(0.0, 1.0, 2000)
    >>> 0.5 < ManyRunsAudit(delta=1e-5).epsilon(inside, outside) <= 1.0
    True
    """

    copies: int = 1
    gaussian: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.count("copies", self.copies)

    def run(
        self,
        inside: Any,
        outside: Any,
        *,
        what: str,
        proved: float,
        control: tuple[Any, Any],
        claimed: float | None = None,
        seconds: float = 0.0,
        threat: str = "knows the canary, sees the trained model",
    ) -> Finding:
        """From one score a run; `control`: the same of runs without noise."""
        trials = len(inside) - len(inside) // 2
        return self.finding(
            what=what,
            claimed=claimed,
            proved=proved,
            audited=self.epsilon(inside, outside),
            ceiling=self._bound(trials, 0, trials),
            control=self.epsilon(*control),
            trials=2 * trials,
            method=f"{len(inside)} runs with {self.copies} copies of a canary and as many without, "
            + ("normal trade-off curve" if self.gaussian else "Clopper-Pearson limits"),
            parametric=self.gaussian,
            seconds=seconds,
            threat=threat,
        )

    def epsilon(self, inside: Any, outside: Any) -> float:
        """The lower bound of epsilon from these scores."""
        a, b = _scores(inside), _scores(outside)
        if len(a) != len(b) or len(a) < 4:
            raise InvalidArgument("runs", (len(a), len(b)), "equally many on both sides, 4 or more")
        half = len(a) // 2
        t = OneShotAudit(confidence=self.confidence, delta=self.delta).threshold(a[:half], b[:half])
        hits_in, hits_out = (int((s[half:] >= t).sum()) for s in (a, b))
        return self._bound(hits_in, hits_out, len(a) - half)

    def _bound(self, hits_in: int, hits_out: int, trials: int) -> float:
        alpha = self.alpha
        if self.gaussian:
            mu = gaussian_mu_bound((hits_in, trials), (hits_out, trials), alpha=alpha)
            return mu_epsilon(mu / self.copies, self.delta)
        p1, _ = clopper_pearson(hits_in, trials, alpha / 2)
        _, p0 = clopper_pearson(hits_out, trials, alpha / 2)
        both = ((p1, p0), (1.0 - p0, 1.0 - p1))  # the event and its complement
        return max(group_epsilon(x, y, copies=self.copies, delta=self.delta) for x, y in both)


def _scores(given: Any) -> Scores:
    scores = np.asarray(given, dtype=np.float64)
    if scores.ndim != 1 or np.isnan(scores).any():
        raise InvalidArgument("scores", scores.shape, "one number a run, none of them NaN")
    return scores
