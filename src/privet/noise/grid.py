"""Releasing on a public grid, so that the low bits of a floating-point number tell nothing.

A float64 sum v + n of a value and a continuous draw can only take some of the numbers near its
result, and which ones depends on v: whoever knows the gaps can tell v = 0 from v = 1 in 43% of
naive releases (Mironov 2012 for Laplace; Jin et al. 2022 for Gaussian noise). Here both are rounded
to multiples of a power of two g that depends on the scale of the noise alone, and added as
integers:

    round_g(v) = v_g,    release = v_g + round_g(n) = round_g(v_g + n)    (v_g is a multiple of g).

The right-hand side is a function of v_g + n, the ideal mechanism with real noise applied to v_g. So
the release has the ideal mechanism's guarantee at the sensitivity of v_g, which exceeds that of v
by no more than rounding can add: see `l1_after_rounding` and `l2_after_rounding`.

round_g(n) is sampled with exactly the law of a rounded real draw (`privet.noise.rounded_noise`):
with float64 draws a cell's probability would be off by some 2^-24 of itself, and a pure epsilon
would be exceeded by as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import Unattainable

BITS = 26
"""The grid is between 2^-26 and 2^-27 of the scale of the noise."""
BITS_FLOAT32 = 14
"""The same for float32 output: multiples up to 2^24 are exact, which is 1024 scales."""
_LARGEST = 2**61  # the sum of two such numbers still fits int64
ROUND_UP = 1.0 + 2.0**-50
"""More than eight float64 roundings can take away: those of any formula for a sensitivity."""


def power_of_two_at_most(x: float) -> float:
    """The largest power of two that is at most x."""
    return math.ldexp(1.0, math.frexp(x)[1] - 1)


def spacing(scale: float, *, bits: int = BITS) -> float:
    """The grid for noise of this scale, a power of two: 2^(floor(log2 scale) - bits).

    >>> spacing(1.0) == spacing(1.9) == 2.0**-26
    True
    """
    # beyond these the grid, or a sum on it, would leave the range of float64
    scale = _check.between("scale", scale, 2.0**-900, 2.0**900)
    return math.ldexp(power_of_two_at_most(scale), -bits)


def l1_after_rounding(sensitivity: float, *, dimension: int, step: float) -> float:
    """The L1 sensitivity of d rounded coordinates, from that of the exact ones.

    Two reals at distance x round to multiples of g at distance at most g ceil(x / g) < x + g.
    Summed over d coordinates: Delta_1 + d g; with d = 1 it is g ceil(Delta / g), and a multiple of
    g pays nothing.

    >>> l1_after_rounding(1.0, dimension=1, step=2.0**-26)
    1.0
    """
    if dimension == 1:
        return _one_coordinate(sensitivity, step)
    return (sensitivity + dimension * step) * ROUND_UP


def l2_after_rounding(sensitivity: float, *, dimension: int, step: float) -> float:
    """The L2 sensitivity of d rounded coordinates, from that of the exact ones.

    Each value moves by at most g/2 a coordinate, so the difference of two moves by a vector with
    entries of at most g, of norm sqrt(d) g: Delta_2 + sqrt(d) g. With d = 1 it is g ceil(Delta /
    g).
    """
    if dimension == 1:
        return _one_coordinate(sensitivity, step)
    return (sensitivity + math.sqrt(dimension) * step) * ROUND_UP


def _one_coordinate(sensitivity: float, step: float) -> float:
    """g ceil(Delta / g), for halves that all round upwards, as in `to_units`."""
    if sensitivity == 0.0:
        return 0.0
    steps = sensitivity / step  # exact, step being a power of two, unless it underflows
    # beyond 2^53 it is whole
    return max(1, math.ceil(steps)) * step if steps < 2**53 else sensitivity


def smallest_scale(needed: Callable[[float], float], start: float) -> float:
    """The smallest scale we find with scale >= needed(scale), from below.

    `needed` grows by steps, where the grid doubles, so that this ends after a few rounds or never.
    """
    scale = start
    for _ in range(64):  # two or three are usual; 64 doublings of the grid end at no grid at all
        wanted = needed(scale)
        if wanted <= scale:
            return scale
        scale = wanted
    raise Unattainable(
        "no scale meets the target: rounding to the grid alone costs more than it allows"
    )


def noise_scale(*, sensitivity: float, noise_multiplier: float, dimension: int) -> float:
    """The standard deviation that makes z true after rounding to the public grid.

    Rounding d coordinates to a grid of spacing g lets one example move the sum by up to
    C + sqrt(d) g, so the scale is z (C + sqrt(d) g(scale)): a relative 1e-8 sqrt(d) more than z C.

    >>> noise_scale(sensitivity=1.0, noise_multiplier=2.0, dimension=10**6) / 2.0 - 1.0 < 1e-4
    True
    """
    z = _check.positive("noise_multiplier", noise_multiplier)
    c = _check.positive("sensitivity", sensitivity)

    def needed(scale: float) -> float:
        # the tensor path rounds halves to even, for which one coordinate has no better bound
        return z * l2_after_rounding(c, dimension=max(dimension, 2), step=spacing(scale))

    return smallest_scale(needed, z * c)


def to_units(values: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    """The nearest multiples of `step`, halves upwards, counted in steps; held at 2^61 steps.

    Halves must all go the same way: then two values at a distance x round to multiples at most
    ceil(x / g) steps apart. Halves to even would make 2 of the distance from 0.5 to 1.5.

    Holding is 1-Lipschitz in each coordinate, so it never adds to a sensitivity; raising an error
    instead would tell something about the data.
    """
    with np.errstate(over="ignore"):
        exact = np.asarray(values, dtype=np.float64) / step
        units = np.floor(exact)
        with np.errstate(invalid="ignore"):  # inf - inf, held below
            units = units + (exact - units >= 0.5)
    return np.clip(units, -_LARGEST, _LARGEST).astype(np.int64)


def add(
    values: NDArray[np.float64], units: NDArray[np.int64], *, step: float
) -> NDArray[np.float64]:
    """Values rounded to the grid and noise in steps of it, added as integers: the released number.

    Turning the integer into float64 is exact up to 2^53 steps, and beyond that a rounding of what
    was already released.

    >>> import numpy as np
    >>> float(add(np.array(0.3), np.array(-3), step=0.25))
    -0.5
    """
    total = to_units(values, step) + np.clip(units, -_LARGEST, _LARGEST)
    return np.asarray(total.astype(np.float64) * step)
