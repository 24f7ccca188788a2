"""Vectors of density e^-||x||_2, rounded to a grid: exactly the law of rounded real vectors.

In polar coordinates the density is r^(D-1) e^-r times a uniform direction: r is a sum of D
exponential draws, and the direction that of D normal ones (Hardt and Talwar 2010, section 4, draw
Gamma(D + 1) times a point of the ball, which is the same law). Every draw is known to some 180
binary digits, and all arithmetic is in whole numbers with a lower and an upper end; if a coordinate
straddles two cells (for a million coordinates, once in 10^12 calls), all draws get more digits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.noise.key_stream import KeyStream
from privet.noise.rounded_noise import Ints, settled_words, split_words
from privet.noise.ziggurat import EXPONENTIAL, NORMAL, DensityCurve, layers

Whole = NDArray[Any]
"""An array of Python's own whole numbers, which have no largest one."""
_GUARD = 32
"""Digits of a draw that are not used, so that the others are worth less than a unit."""


class _Draws:
    """n draws from under a curve, each known to `bits` digits: whole numbers of 2^(32 - bits)."""

    def __init__(self, stream: KeyStream, n: int, curve: DensityCurve) -> None:
        self.stack, self.stream, self.bits = layers(curve), stream, 52
        words, self.rare = settled_words(stream, n, self.stack)
        layer, place = split_words(words)
        self.negative = place < 0
        self.digits: Whole = (np.abs(place) >> 1).astype(object)
        self.room: Whole = np.array(self.stack.room, dtype=object)[layer]

    def refine(self) -> None:
        """Draw 64 more digits for every draw."""
        self.digits = (self.digits << 64) | self.stream.words(len(self.digits)).astype(object)
        self.bits += 64

    def low(self) -> Whole:
        """Lower ends; the upper ones are larger by less than 2."""
        out = (self.digits * self.stack.curve.area) // (self.room << _GUARD)
        for i, x in self.rare.items():
            while x.bits < self.bits:
                x.refine()
            out[i] = (x.bounds()[0] * 2 ** (self.bits - _GUARD)).__floor__()
        return np.asarray(out, dtype=object)


def k_norm(stream: KeyStream, n: int, ratio: Fraction) -> Ints:
    """floor(ratio x + 1/2) for the n coordinates of a vector x of density e^-||x||_2, exactly."""
    normal, radius = _Draws(stream, n, NORMAL), _Draws(stream, n, EXPONENTIAL)
    while True:
        for part in (normal, normal, radius, radius):
            part.refine()
        x, r = normal.low(), sum(radius.low().tolist())
        square = sum((x * x).tolist())
        over = square + 4 * sum(x.tolist()) + 4 * n  # the sum of (x + 2)^2
        shift, (top, bottom) = radius.bits - _GUARD, ratio.as_integer_ratio()
        low = _divide(2 * top * r * x, (math.isqrt(over) + 1) * bottom, shift)
        high = _divide(2 * top * (r + 2 * n) * (x + 2), max(math.isqrt(square), 1) * bottom, shift)
        if np.array_equal(low, high):
            units = low.astype(np.int64)
            return np.where(normal.negative, -units, units)


def _divide(above: Whole, below: int, shift: int) -> Whole:
    """floor(above / (2 below 2^shift) + 1/2)."""
    below <<= shift
    return np.asarray((above + below) // (2 * below), dtype=object)
