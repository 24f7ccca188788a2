"""Slow and obvious privacy of many equal steps: the inversion integral summed to convergence.

No smoothing, no cut-off, no bounds: a dense sum over frequencies of the moment generating function,
itself a dense sum over the real line. It needs many steps, so that the integrand dies out by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from privet.accounting import Direction


def epsilon_of_many(q: float, z: float, steps: int, delta: float, direction: Direction) -> float:
    """epsilon in one direction, to about six digits."""
    h = 26.0 / 6_000  # the weight e^(order u / z) moves the mass by order / z: orders up to e^5 fit
    u = np.arange(-13.0, 13.0 + (math.exp(5) + 1) / z, h)
    log_base = -0.5 * u * u + math.log(h / math.sqrt(2 * math.pi))
    base = np.exp(log_base)
    ell = np.log1p(q * np.expm1(np.minimum(u / z - 0.5 / z**2, 300.0)))
    sign = 1.0 if direction is Direction.REMOVE else -1.0
    shift = 1.0 if direction is Direction.REMOVE else 0.0

    def log_mgf(x: complex) -> complex:
        # log1p of E[e^(...)] - 1 keeps the digits that many steps multiply
        y = (x + shift) * sign * ell + 0j
        small = y.real < 30.0
        near = np.sum(base[small] * np.expm1(y[small]))
        return complex(np.log1p(near + np.sum(np.exp(y[~small] + log_base[~small]))))

    def k(order: float) -> float:
        return steps * log_mgf(complex(order)).real

    def chernoff(log_order: float) -> float:
        order = math.exp(log_order)
        return (k(order) - math.log(delta)) / order

    found = minimize_scalar(chernoff, bounds=(-9, 5), method="bounded", options={"xatol": 1e-3})
    order, rough = math.exp(found.x), float(found.fun)
    spread = math.sqrt(max(2 * k(1e-3) / (1e-3 * 1.001), 1e-12))
    spacing = min(2 * math.pi / (3 * (rough + 40 * spread + 60 / order)), order / 8)
    lower = max(rough - 12 / order, 0.0)
    last = math.inf
    for _ in range(6):  # a finer comb of frequencies until copies of the law no longer overlap
        found_here = brentq(excess_of(k, log_mgf, steps, delta, order, spacing), lower, rough)
        if abs(found_here - last) < 1e-6 * rough:
            return float(found_here)
        last, spacing = found_here, spacing / 2
    raise ArithmeticError("the sum over frequencies does not settle")


def excess_of(
    k: Callable[[float], float],
    log_mgf: Callable[[complex], complex],
    steps: int,
    delta: float,
    order: float,
    spacing: float,
) -> Callable[[float], float]:
    """log(delta(epsilon) / delta) by a sum over frequencies this far apart."""
    values: list[complex] = []
    while not values or abs(values[-1]) >= 1e-13 * abs(values[0]):
        x = complex(order, spacing * len(values))
        values.append(np.exp(steps * log_mgf(x) - k(order)) / (x * (x + 1)))
        if len(values) > 20_000:
            raise ArithmeticError("the integrand does not die out; take more steps")
    terms = np.array(values)
    frequencies = spacing * np.arange(len(terms))

    def excess(epsilon: float) -> float:
        wave = (terms * np.exp(-1j * frequencies * epsilon)).real
        total = spacing / math.pi * (np.sum(wave) - 0.5 * wave[0])
        return math.log(max(total, 1e-300)) + k(order) - order * epsilon - math.log(delta)

    return excess
