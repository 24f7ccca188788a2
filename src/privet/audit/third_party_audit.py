"""Audits of anybody's releases, trainings and accounts: given a claim, and a way to run it.

- `audit_draws`: whatever gives a vector (a mechanism of OpenDP or diffprivlib, an estimator of
  scikit-learn's kind, a Flower client's update), drawn again and again on two neighbours;
- `note_noisy_sum`: in a loop of plain torch or numpy, so that `privet.audit.audit_releases` sees
  every noisy sum;
- `check_account`: an accountant's epsilon against the two-sided exact one;
- `floating_point_leak`: floating-point noise whose last bits tell neighbours apart.

`python -m benchmarks.peers` runs other libraries with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.accounting import PrivacyLoss
from privet.audit.finding import Finding
from privet.audit.single_release_audit import OneShotAudit
from privet.mechanisms import log_density_ratio, release_transcript
from privet.noise import Source, seeded

Floats = NDArray[np.float64]
Release = Callable[[bool, int], Any]
"""Whether the record is there, and a seed (for those that take one), to what is released."""


def audit_draws(
    release: Release, *, what: str, epsilon: float, delta: float = 0.0, trials: int = 5_000,
    confidence: float = 0.99, seed: int = 0, without_noise: Release | None = None,
) -> Finding:  # fmt: skip
    """A lower bound of epsilon from draws on both sides, with nothing assumed about them.

    The score is the projection of a release on the line between the two means, over its spread:
    learned on draws of their own, as the threshold is. Without `without_noise` the control is what
    is found when every draw is distinguished.

    >>> def count(there, seed):
    ...     return there + seeded(seed).laplace(1)
    >>> found = audit_draws(count, what="a count", epsilon=1.0, trials=2_000)
    >>> 0.5 < found.audited <= 1.0, found.verdict.value
    (True, 'consistent')
    """
    pilot = max(200, trials // 5)  # a fifth for the direction and the threshold, none of it counted

    def vectors(of: Release, there: bool, n: int, rng: Source) -> Floats:
        rows = [np.ravel(of(there, int(s))) for s in rng.integers(2**31, n)]
        return np.asarray(rows, dtype=np.float64)

    def draw_scores(of: Release) -> tuple[Any, Any]:
        rng = seeded(seed).child("direction")
        first, second = (vectors(of, side, pilot, rng.child(str(side))) for side in (True, False))
        apart = first.mean(axis=0) - second.mean(axis=0)
        line = apart / (first.var(axis=0) + second.var(axis=0) + 1e-300)
        line /= np.abs(line).max() or 1.0
        return tuple(
            lambda n, rng, side=side: vectors(of, side, n, rng) @ line for side in (True, False)
        )  # type: ignore[return-value]

    with_record, without_record = draw_scores(release)
    audit = OneShotAudit(trials=trials, pilot=pilot, delta=delta, confidence=confidence)
    apart = (lambda n, rng: np.ones(n), lambda n, rng: np.zeros(n))
    return audit.run(
        what=what,
        with_record=with_record,
        without_record=without_record,
        control=apart if without_noise is None else draw_scores(without_noise),
        claimed=epsilon,
        proved=float("inf"),
        rng=seeded(seed),
    )


def note_noisy_sum(
    exact: Any, noisy: Any, *, scale: float, sensitivity: float, rate: float = 1.0
) -> Floats:
    """Show an audit a sum with normal noise, and return the sum that the loop goes on with.

    In any training loop: `grad = note_noisy_sum(clipped_sum, grad, scale=z * C, sensitivity=C)`.
    """
    return release_transcript.record_release(
        "clipped sum",
        np.asarray(exact, dtype=np.float64),
        np.asarray(noisy, dtype=np.float64),
        sensitivity=sensitivity,
        log_ratio=partial(log_density_ratio.gaussian_log_ratio, scale=scale),
        rate=rate,
    )


@final
@dataclass(frozen=True, kw_only=True)
class AccountCheck:
    """What an accountant states, beside the interval that holds the truth."""

    stated: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether it states no less than the exact epsilon."""
        return self.stated >= self.low


def check_account(stated: float, loss: PrivacyLoss, *, delta: float) -> AccountCheck:
    """A stated epsilon against both proved bounds of the exact one.

    >>> from privet.accounting import Gaussian
    >>> check_account(4.0, Gaussian(mu=1.0), delta=1e-5).holds
    False
    """
    low, high = loss.epsilon_bounds(delta)
    return AccountCheck(stated=float(stated), low=low, high=high)


def floating_point_leak(release: Callable[[float, int], float], *, draws: int = 2_000) -> float:
    """The share of releases of 0 that no release of 1 could have been: floats that tell.

    Noise added in floating point leaves a grid of its own around every value: o = fl(1 + x) gives
    (o - 1) + 1 = o, which small outputs around 0 do not. Nothing is reported unless releases of 1
    keep that rule without exception. Mironov, "On significance of the least significant bits for
    differential privacy" (2012).

    >>> rng = np.random.default_rng(0)
    >>> floating_point_leak(lambda value, seed: value + rng.laplace()) > 0.2
    True
    """
    broken = [
        sum(float((o - 1.0) + 1.0) != o for o in (release(v, k) for k in range(draws))) / draws
        for v in (0.0, 1.0)
    ]
    return broken[0] if broken[1] == 0.0 else 0.0
