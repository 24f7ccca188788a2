"""What the paper sets its closed form against, besides the moments accountant."""

from __future__ import annotations

import math

from privet.accounting import SampledGaussian


def dwork_roth(loss: SampledGaussian, delta: float) -> float | None:
    """The classical Gaussian mechanism, epsilon = sqrt(2 ln(1.25 / delta)) u, where it speaks.

    Put in the place of f in Theorem 1: u = q sqrt(T) / z. Its proof needs epsilon <= 1 (the paper
    says so of 0 < epsilon <= 1, delta < .41), so beyond that there is no number. Like the closed
    form it takes a sampled Gaussian for one with sigma / q, which for q < 1 is a claim.

    >>> dwork_roth(SampledGaussian(sample_rate=1.0, noise_multiplier=4.0, steps=1), 1e-5) is None
    True
    >>> once = SampledGaussian(sample_rate=1.0, noise_multiplier=10.0, steps=1)
    >>> round(dwork_roth(once, 1e-5), 4), round(once.epsilon(1e-5), 4)
    (0.4845, 0.3407)
    """
    epsilon = math.sqrt(2.0 * math.log(1.25 / delta)) * _ratio(loss)
    return epsilon if epsilon <= 1.0 and delta < 0.41 else None


def abadi_shape(loss: SampledGaussian, delta: float) -> float:
    """Theorem 1 of Abadi et al. (2016) with c_2 = 1: epsilon = q sqrt(T ln(1 / delta)) / z.

    The theorem says that *some* c_1 and c_2 exist with epsilon >= c_2 times this for all epsilon
    below c_1 q^2 T: a shape, in q, T and delta, not a bound.

    >>> tenth = SampledGaussian(sample_rate=0.01, noise_multiplier=4.0, steps=10_000)
    >>> round(abadi_shape(tenth, 1e-5), 4)
    0.8483
    """
    return _ratio(loss) * math.sqrt(-math.log(delta))


def _ratio(loss: SampledGaussian) -> float:
    """u, the root of the sum of (q_t / z_t)^2."""
    q, z, n = loss.groups
    return math.sqrt(math.fsum(n * (q / z) ** 2))
