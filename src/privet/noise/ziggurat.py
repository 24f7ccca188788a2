"""The layers of a ziggurat, in whole numbers: a stack of rectangles of one area over a curve.

Two curves f(x) = e^-p(x), x > 0, are covered: the normal one, p = x^2/2, and the exponential one,
p = x. Layer i lies between the heights Y[i-1] and Y[i] and reaches from x = 0 to w[i] (Marsaglia
and Tsang 2000). Heights are multiples of 2^-64 and w[i] = A / (Y[i] - Y[i-1]) is a fraction, so all
areas are A *exactly*. The lowest layer has the tail beyond R in place of what a rectangle of width
w[0] has there, drawn under the envelope C e^(-rate (x - R)) of the same area B = A - R Y[0] = C /
rate. What has to hold for all this to cover the curve, and is tested in fifty digits:

    f(w[i]) <= Y[i-1]  for i >= 1,      Y[1023] >= 1,      rate B >= f(R),
    p(x) >= p(R) + rate (x - R)  for x >= R.

The tables are made with `decimal`, so they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import cache
from typing import final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LAYERS = 1024  # ten bits of a word; the tables (24 kB) stay in the first-level cache
ONE = 2**64
"""Height 1."""
_DIGITS = Context(prec=40, rounding=ROUND_DOWN)  # heights have 64 bits (20 digits): twice that


@final
@dataclass(frozen=True, kw_only=True)
class DensityCurve:
    """f(x) = e^-power(x), and where its stack of layers ends."""

    power: Callable[[Fraction], Fraction]
    root: Callable[[Decimal], Decimal]
    """The x with power(x) = t."""
    end: int
    """R, where the tail begins, which is drawn in another way: less than once in 10^7 draws."""
    rate: int
    """Of the envelope of the tail."""
    area: int
    """A in units of 2^-64: the least multiple of 2^-40 for which 1024 layers reach height 1."""
    tail: int
    """B is at least this, in units of 2^-64."""


NORMAL = DensityCurve(
    power=lambda x: x * x / 2,
    root=lambda t: _DIGITS.sqrt(_DIGITS.multiply(Decimal(2), t)),
    end=6,
    rate=6,
    area=1348735804 << 24,
    tail=1 << 36,
)
EXPONENTIAL = DensityCurve(
    power=lambda x: x, root=lambda t: t, end=16, rate=1, area=1077545843 << 24, tail=1 << 41
)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """A stack: `low` and `room` as whole numbers, and what arrays need of it in float64."""

    curve: DensityCurve
    low: tuple[int, ...] = field(repr=False)
    """Y[i-1], in units of 2^-64."""
    room: tuple[int, ...] = field(repr=False)
    """Y[i] - Y[i-1], in the same units."""
    inside: NDArray[np.int64] = field(repr=False)
    """Places below this one, of 2^53, are under the curve at every height of their layer."""
    beyond: int
    """Places of the lowest layer from this one on may belong to the tail."""
    widths: Floats = field(repr=False)
    """w[i] 2^-53, off by a relative 2^-53; so are the next two."""
    lows: Floats = field(repr=False)
    rooms: Floats = field(repr=False)

    def width(self, layer: int) -> Fraction:
        """The width w[i] of a layer, exactly."""
        return Fraction(self.curve.area, self.room[layer])


@cache
def layers(curve: DensityCurve) -> Layers:
    """The stack over a curve, made once in a process.

    >>> found = layers(NORMAL)
    >>> len(found.room), found.low[-1] + found.room[-1] >= ONE
    (1024, True)
    """

    def edge(height: int) -> Decimal:  # where the curve has this height, to some 38 digits
        return curve.root(-_DIGITS.ln(_DIGITS.divide(Decimal(height), Decimal(ONE))))

    low, room, inside = [0], [(curve.area - curve.tail) // curve.end], []
    for _ in range(LAYERS - 1):
        low.append(low[-1] + room[-1])
        # larger by 10^-30, a width covers the curve whatever the last digits are
        wide = _DIGITS.multiply(edge(low[-1]), Decimal("1") + Decimal("1e-30"))
        room.append(int(_DIGITS.divide(Decimal(curve.area), wide)))
    for y, height in zip(low, room, strict=True):
        reach = Fraction(edge(y + height)) if y + height < ONE else Fraction(0)
        inside.append(max(0, int(reach * height / curve.area * 2**53) - 2))  # 2: the digits cut off
    return Layers(
        curve=curve,
        low=tuple(low),
        room=tuple(room),
        inside=np.array(inside, dtype=np.int64),
        beyond=int(Fraction(curve.end * room[0], curve.area) * 2**53) - 2,  # likewise
        widths=np.array([float(Fraction(curve.area, height << 53)) for height in room]),
        lows=np.array([float(Fraction(y, ONE)) for y in low]),
        rooms=np.array([float(Fraction(y, ONE)) for y in room]),
    )
