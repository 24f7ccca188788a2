"""Every accountant side by side, and where the closed form can be believed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from privet import _check
from privet.accounting.closed_form import closed_form_claim
from privet.accounting.gaussian import Gaussian
from privet.accounting.poisson_sampling import SampledGaussian
from privet.accounting.privacy_loss import PrivacyLoss
from privet.accounting.renyi_and_moments_accountants import moments_guarantee, renyi_guarantee
from privet.guarantee import Guarantee


class ClaimVerdict(Enum):
    """What exact accounting says about a claimed epsilon."""

    VALID = "valid bound"
    """At least the proved upper bound: nothing is under-reported."""
    UNDECIDED = "undecided"
    """Between the proved bounds of the exact epsilon."""
    UNDER_REPORTS = "under-reports"
    """Below the proved lower bound of what the release really costs."""


def judge_claim(claimed: float, bounds: tuple[float, float]) -> ClaimVerdict:
    """Hold a claimed epsilon against proved bounds of the exact one, (low, high).

    >>> judge_claim(1.136, (0.9469, 0.9472)).value, judge_claim(4.917, (6.186, 6.19)).value
    ('valid bound', 'under-reports')
    """
    low, high = bounds
    if claimed >= high:
        return ClaimVerdict.VALID
    return ClaimVerdict.UNDECIDED if claimed >= low else ClaimVerdict.UNDER_REPORTS


@dataclass(frozen=True, kw_only=True)
class AccountantComparison:
    """What each accountant says of one loss at one delta; `closed_form` is None where it has none.

    `exact`, `rdp` and `moments` are upper bounds, from tight to loose; the closed form is the
    paper's claim. The exact epsilon lies between `low` and `exact.epsilon`.
    """

    delta: float
    exact: Guarantee
    low: float
    closed_form: Guarantee | None
    rdp: Guarantee
    moments: Guarantee

    @property
    def verdict(self) -> ClaimVerdict | None:
        """Whether the closed form is a valid bound here."""
        if self.closed_form is None:
            return None
        return judge_claim(self.closed_form.epsilon, self.bounds)

    @property
    def bounds(self) -> tuple[float, float]:
        """Proved bounds of the exact epsilon, from below and from above."""
        return self.low, self.exact.epsilon

    @property
    def ratio(self) -> float:
        """exact / closed form: above 1 the claim under-reports by this factor; NaN without one."""
        if self.closed_form is None or self.closed_form.epsilon == 0.0:
            return math.nan
        return self.exact.epsilon / self.closed_form.epsilon

    def explain(self) -> str:
        """The verdict in a few words."""
        if self.closed_form is None or self.verdict is None:
            return "the closed form does not speak of this loss"
        if self.verdict is ClaimVerdict.VALID:
            loose = (
                self.closed_form.epsilon / self.exact.epsilon if self.exact.epsilon else math.inf
            )
            return f"valid here, {loose - 1.0:.0%} loose" if loose < 10 else "valid here, loose"
        if self.verdict is ClaimVerdict.UNDECIDED:
            return "too close to tell"
        short = self.ratio
        if short < 1.995:  # from here on "2.0 times" reads better than "100% more"
            return f"under-reports: the truth is {100.0 * (short - 1.0):.2g}% more"
        return f"under-reports: the truth is {short:.1f} times as much"

    def rows(self) -> Iterator[tuple[str, Guarantee]]:
        """Name and guarantee of each accountant that has an answer."""
        for name in ("exact", "closed_form", "rdp", "moments"):
            value = getattr(self, name)
            if value is not None:
                yield name, value

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping, `accountants.NAME.epsilon` and so on."""
        out: dict[str, Any] = {
            name: {k: v for k, v in g.to_dict().items() if k not in ("delta", "adjacency")}
            for name, g in self.rows()
        }
        out["exact"]["epsilon_low"] = self.low
        if self.verdict is None:
            out["closed_form"] = None
        else:
            out["closed_form"] |= {
                "valid_bound": self.verdict is ClaimVerdict.VALID,
                "verdict": self.verdict.value,
                "exact_over_claim": self.ratio if math.isfinite(self.ratio) else None,
            }
        return {
            "delta": self.delta,
            "adjacency": self.exact.adjacency.value,
            "accountants": out,
        }


def accountants(loss: PrivacyLoss, delta: float) -> AccountantComparison:
    """Every accountant's epsilon for one loss, with standing and verdict.

    **Guarantee**: `exact`, `rdp` and `moments` are proved; `closed_form` is a claim unless every
    sample rate is 1.

    >>> steps = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=10_000)
    >>> table = accountants(steps, 1e-5)
    >>> [(name, round(g.epsilon, 2), g.standing.value) for name, g in table.rows()][:2]
    [('exact', 6.19, 'proved'), ('closed_form', 4.92, 'claimed')]
    >>> table.explain()
    'under-reports: the truth is 26% more'
    """
    delta = _check.open_unit("delta", delta)
    gaussian = all(isinstance(p, Gaussian | SampledGaussian) for p in loss.parts)
    return AccountantComparison(
        delta=delta,
        exact=loss.guarantee(delta),
        low=loss.epsilon_bounds(delta)[0],
        closed_form=closed_form_claim(loss, delta) if gaussian else None,
        rdp=renyi_guarantee(loss, delta),
        moments=moments_guarantee(loss, delta),
    )


TABLE = (
    (0.01, 4.0, 10_000),
    (0.01, 2.0, 10_000),
    (0.01, 1.5, 10_000),
    (0.01, 1.0, 10_000),
    (0.01, 0.5, 1_000),
    (0.001, 0.5, 10_000),
)
"""(sample rate, noise multiplier, steps) of the table that shows where the closed form fails."""


def table(delta: float = 1e-5) -> list[tuple[SampledGaussian, AccountantComparison]]:
    """The comparison for each row of `TABLE`."""
    losses = [SampledGaussian(sample_rate=q, noise_multiplier=z, steps=t) for q, z, t in TABLE]
    return [(loss, accountants(loss, delta)) for loss in losses]
