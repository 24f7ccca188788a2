"""Audits that watch every step: a bound of the noise of one step, then the exact accounting.

Nasr, Hayes, Steinke, Balle, Tramer, Jagielski, Carlini and Terzis, "Tight Auditing of
Differentially Private Machine Learning", 2023. The attacker sees each noisy sum and knows which
canaries took part in it. Steps with and without a canary are N(1, z^2) and N(0, z^2) in units of
its clipped length, so that a lower bound mu of 1/z is a bound of the noise; the accountant under
test turns it into epsilon for all steps.

What it tests is the step: clipping, noise, its scale. The sampling is taken as stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from privet import _check
from privet.audit.epsilon_lower_bounds import gaussian_mu_bound
from privet.audit.finding import Audit, Finding
from privet.errors import InvalidArgument

Account = Callable[[float], float]
"""The noise multiplier of every step to the epsilon of the run."""

MIDDLE = 0.5
"""The event "above 1/2", half way between the two means: fixed beforehand."""


@final
@dataclass(frozen=True, kw_only=True)
class PerStepAudit(Audit):
    """A bound from what steps with a canary and steps without it released on its coordinate.

    **Guarantee** `Finding.audited` exceeds the true epsilon with probability at most
    1 - confidence if noise is normal and independent between steps and coordinates, and sampling
    is as stated (**assumed** here; the conformance suite tests these).

    >>> from privet.noise import seeded
    >>> x, y = 1.0 + seeded(1).gaussian(5000), seeded(2).gaussian(5000)
    >>> 0.9 < 1.0 / PerStepAudit().noise_multiplier(x, y) < 1.0
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.open_unit("delta", self.delta)

    def run(
        self,
        inside: Any,
        outside: Any,
        *,
        what: str,
        account: Account,
        proved: float,
        control: tuple[Any, Any],
        claimed: float | None = None,
        seconds: float = 0.0,
    ) -> Finding:
        """`account`: z to epsilon of the run; `control`: the same of steps without noise."""
        n, m = len(inside), len(outside)
        ceiling = gaussian_mu_bound((n, n), (0, m), alpha=self.alpha)
        return self.finding(
            what=what,
            claimed=claimed,
            proved=proved,
            audited=self._epsilon(self.noise_multiplier(inside, outside), account),
            ceiling=self._epsilon(1.0 / ceiling, account),
            control=self._epsilon(self.noise_multiplier(*control), account),
            trials=n + m,
            method=f"{n} noisy sums with a canary, {m} without; then exact accounting",
            parametric=True,
            seconds=seconds,
            threat="knows who is in every batch, sees every noisy sum",
        )

    def noise_multiplier(self, inside: Any, outside: Any) -> float:
        """An upper bound of z; infinite if nothing was distinguished."""
        a, b = (np.asarray(v, dtype=np.float64).ravel() for v in (inside, outside))
        if min(len(a), len(b)) < 2 or np.isnan(a).any() or np.isnan(b).any():
            raise InvalidArgument("seen", (len(a), len(b)), "two numbers a side or more, no NaN")
        hits = [int((s >= MIDDLE).sum()) for s in (a, b)]
        mu = gaussian_mu_bound((hits[0], len(a)), (hits[1], len(b)), alpha=self.alpha)
        return math.inf if mu == 0.0 else 1.0 / mu

    @staticmethod
    def _epsilon(noise_multiplier: float, account: Account) -> float:
        return 0.0 if math.isinf(noise_multiplier) else account(noise_multiplier)
