"""A run of training cut off after some of its steps: what it has spent by then, by whom it is."""

from __future__ import annotations

import numpy as np

from privet.loss import SampledGaussian
from privet.loss.closed_form import closed_form_claim
from privet.loss.renyi import moments_epsilon, renyi_epsilon


def by_accountant(
    loss: SampledGaussian, delta: float, points: int
) -> tuple[list[int], dict[str, list[float]]]:
    """Some moments of a run, and what each accountant says that was spent by then."""
    run = prefixes(loss, points)
    parts = [part for _, part in run]
    return [steps for steps, _ in run], {
        "moments": [moments_epsilon(part, delta) for part in parts],
        "Renyi": [renyi_epsilon(part, delta) for part in parts],
        "exact": [part.epsilon(delta) for part in parts],
        "closed form": [closed_form_claim(part, delta).epsilon for part in parts],
    }


def prefixes(loss: SampledGaussian, points: int) -> list[tuple[int, SampledGaussian]]:
    """The first steps of a run, in the order in which they were given, at `points` moments.

    >>> run = SampledGaussian(sample_rate=0.1, noise_multiplier=1.0, steps=100)
    >>> [steps for steps, _ in prefixes(run, 4)]
    [12, 35, 65, 100]
    """
    q, z, n = (np.asarray(v) for v in (loss.sample_rate, loss.noise_multiplier, loss.steps))
    ends = np.cumsum(n)
    total = int(ends[-1])
    cuts = sorted({max(1, round(total * (k / points) ** 1.5)) for k in range(1, points + 1)})
    out = []
    for cut in cuts:
        last = int(np.searchsorted(ends, cut))
        m = n[: last + 1].copy()
        m[last] -= ends[last] - cut
        part = SampledGaussian(
            sample_rate=q[: last + 1],
            noise_multiplier=z[: last + 1],
            steps=m,
            adjacency=loss.adjacency,
        )
        out.append((cut, part))
    return out
