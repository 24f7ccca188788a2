"""Slow and obvious privacy of two sampled Gaussian steps: one numerical integral, no transform.

delta of L1 + L2 at epsilon is E over L1 of the profile of step 2 at epsilon - L1.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq

from privet.accounting import Direction, SampledGaussian


def delta_of_two(q: float, z: float, epsilon: float, direction: Direction) -> float:
    """delta of two equal add-remove steps at epsilon, to about ten digits."""
    step = SampledGaussian(sample_rate=q, noise_multiplier=z)

    def integrand(u: float) -> float:
        ratio = 1 - q + q * math.exp((u * z - 0.5) / z**2)
        density = math.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)
        loss = math.log(ratio)
        if direction is Direction.REMOVE:
            density *= ratio
        else:
            loss = -loss
        profile = step.profile(np.array([epsilon - loss]), direction)
        assert profile is not None
        return density * float(profile[0])

    edges = [-12.0, -6.0, -2.0, 0.0, 2.0, 6.0, 12.0, 12.0 + 1.0 / z]
    pieces = [
        quad(integrand, a, b, epsabs=1e-18, epsrel=1e-11, limit=400)[0]
        for a, b in itertools.pairwise(edges)
    ]
    return math.fsum(pieces)


def epsilon_of_two(q: float, z: float, delta: float) -> float:
    """The worse of both directions."""
    worst = 0.0
    for direction in Direction:
        if delta_of_two(q, z, 0.0, direction) <= delta:
            continue
        high = 1.0
        while delta_of_two(q, z, high, direction) > delta:
            high *= 2.0
        root = brentq(lambda e, d=direction: delta_of_two(q, z, e, d) - delta, 0.0, high, rtol=1e-9)
        worst = max(worst, float(root))
    return worst
