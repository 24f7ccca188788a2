"""Where the closed form is a valid bound: the plane of sampling rates and noise multipliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privet import _check
from privet.accounting.closed_form import closed_form_claim, unsampled
from privet.accounting.gaussian import Gaussian
from privet.accounting.poisson_sampling import SampledGaussian
from privet.accounting.privacy_loss import Array
from privet.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class ValidityMap:
    """Closed form and exact epsilon on a grid: a row for each rate, a column for each noise."""

    sample_rates: Array
    noise_multipliers: Array
    steps: int
    delta: float
    claimed: Array
    exact: Array

    @property
    def ratio(self) -> Array:
        """exact / closed form; above 1 the closed form under-reports."""
        return np.asarray(self.exact / self.claimed)

    @property
    def valid(self) -> Array:
        """Whether the closed form is at least the exact epsilon."""
        return np.asarray(self.claimed >= self.exact)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping; `valid[i][j]` belongs to rate i and noise multiplier j."""
        return {
            "steps": self.steps,
            "delta": self.delta,
            "sample_rates": self.sample_rates.tolist(),
            "noise_multipliers": self.noise_multipliers.tolist(),
            "closed_form": self.claimed.tolist(),
            "exact": self.exact.tolist(),
            "valid": self.valid.tolist(),
        }


def validity_map(
    *,
    steps: int,
    delta: float,
    sample_rates: Sequence[float] | Array | None = None,
    noise_multipliers: Sequence[float] | Array | None = None,
) -> ValidityMap:
    """Where the closed form is a valid bound: the (rate, noise) plane for a number of steps.

    >>> m = validity_map(
    ...     steps=1000, delta=1e-5, sample_rates=[0.01, 1.0], noise_multipliers=[0.5, 8.0]
    ... )
    >>> m.valid.tolist()
    [[False, True], [True, True]]
    """
    t, d = _check.count("steps", steps), _check.open_unit("delta", delta)
    # what DP-SGD is run with, five rates a decade and twelve noises
    rates = np.geomspace(1e-4, 1.0, 21) if sample_rates is None else np.asarray(sample_rates, float)
    noises = (
        np.geomspace(0.3, 30.0, 25)
        if noise_multipliers is None
        else np.asarray(noise_multipliers, float)
    )
    if rates.ndim != 1 or noises.ndim != 1 or not len(rates) or not len(noises):
        raise InvalidArgument("grid", (rates.shape, noises.shape), "two lists of numbers")
    claimed, exact = np.empty((len(rates), len(noises))), np.empty((len(rates), len(noises)))
    for i, q in enumerate(rates):
        for j, z in enumerate(noises):
            loss = SampledGaussian(sample_rate=float(q), noise_multiplier=float(z), steps=t)
            claimed[i, j] = closed_form_claim(loss, d).epsilon
            exact[i, j] = (
                Gaussian(mu=math.sqrt(t) / float(z)) if unsampled(loss) else loss
            ).epsilon(d)
    return ValidityMap(
        sample_rates=rates,
        noise_multipliers=noises,
        steps=t,
        delta=d,
        claimed=claimed,
        exact=exact,
    )
