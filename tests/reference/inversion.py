"""Slow and obvious privacy of many equal steps: the inversion integral summed to convergence.

No smoothing, no cut-off, no bounds: a dense sum over frequencies of the moment generating function,
itself a dense sum over the real line. It needs many steps, so that the integrand dies out by itself.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from privet.loss import Direction


def epsilon_of_many(q: float, z: float, steps: int, delta: float, direction: Direction) -> float:
    """epsilon in one direction, to about six digits."""
    u = np.linspace(-13.0, 13.0 + 30.0 / z, 8_001)
    h = u[1] - u[0]
    base = np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) * h
    ell = np.log1p(q * np.expm1(np.minimum(u / z - 0.5 / z**2, 300.0)))
    sign = 1.0 if direction is Direction.REMOVE else -1.0
    shift = 1.0 if direction is Direction.REMOVE else 0.0

    def log_mgf(x: complex) -> complex:
        # log1p of E[e^(...)] - 1 keeps the digits that many steps multiply
        return complex(np.log1p(np.sum(base * np.expm1((x + shift) * sign * ell + 0j))))

    def k(order: float) -> float:
        return steps * log_mgf(complex(order)).real

    def chernoff(log_order: float) -> float:
        order = math.exp(log_order)
        return (k(order) - math.log(delta)) / order

    found = minimize_scalar(chernoff, bounds=(-9, 5), method="bounded", options={"xatol": 1e-3})
    order, rough = math.exp(found.x), float(found.fun)
    spread = math.sqrt(max(2 * k(1e-3) / (1e-3 * 1.001), 1e-12))
    spacing = min(2 * math.pi / (3 * (rough + 40 * spread + 60 / order)), order / 8)
    values = []
    w = 0.0
    while True:
        x = complex(order, w)
        value = np.exp(steps * log_mgf(x) - k(order)) / (x * (x + 1))
        values.append(value)
        if abs(value) < 1e-13 * abs(values[0]):
            break
        if len(values) > 20_000:
            raise ArithmeticError("the integrand does not die out; take more steps")
        w += spacing
    terms = np.array(values)
    frequencies = spacing * np.arange(len(terms))

    def excess(epsilon: float) -> float:
        wave = (terms * np.exp(-1j * frequencies * epsilon)).real
        total = spacing / math.pi * (np.sum(wave) - 0.5 * wave[0])
        return math.log(max(total, 1e-300)) + k(order) - order * epsilon - math.log(delta)

    return float(brentq(excess, max(rough - 12 / order, 0.0), rough, rtol=1e-10))
