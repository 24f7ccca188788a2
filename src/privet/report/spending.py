"""A run of training cut off after some of its steps: what it has spent by then."""

from __future__ import annotations

import numpy as np

from privet.loss import SampledGaussian


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
