"""Noise rounded to a grid, with exactly the law of rounded real draws.

`laplace(stream, n, ratio)` is floor(ratio x + 1/2) for a real Laplace draw x, `gaussian` the same
for a normal one: the noise counted in steps, ratio = scale / step. Nothing is an approximation.
Arrays compute in float64 *and bound their error*; where the answer (under the curve or not, this
cell or the next) lies within the bound, a few times in a million draws, the digits drawn so far are
handed to `privet.noise.lazy_reals`, which draws more until the answer is certain. The theorem and
the error bounds are in docs/theory/noise.md.

A word stands for a layer (its low 10 bits), a sign, and the first 52 digits m of a uniform U:
|x| = U w[layer]. Its *place* is the odd number 2 m + 1, of 2^53, with the sign.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privet.noise import lazy_reals
from privet.noise.key_stream import KeyStream, Words
from privet.noise.lazy_reals import Draw, LazyReal
from privet.noise.ziggurat import (
    EXPONENTIAL,
    LAYERS,
    NORMAL,
    ONE,
    DensityCurve,
    Floats,
    Layers,
    layers,
)

Ints = NDArray[np.int64]
Rare = dict[int, LazyReal]
"""|x| of draws that are known otherwise than by their word, by their place in the array."""

BLOCK = 1 << 14
"""Draws made at a time: they fit the cache."""
MOST = 2**27
"""No ratio is larger: the grid is between 2^-26 and 2^-27 of the scale."""
MARGIN = 2.0**-18
"""More than the error of ratio x in float64, for |x| <= 16.01."""
DOUBT = 2.0**-44
"""More than the error of a height less the curve in float64."""
# e^-x = 2^-n e^r for |r| <= (log 2) / 2, where 14 terms of the series are off by some 4e-18.
LN2 = math.log(2.0)
POWERS = 2.0 ** -np.arange(64.0)  # p < 44 needs 2^0 to 2^-63
TAYLOR = np.array([1.0 / math.factorial(k) for k in range(13, -1, -1)])


def laplace(stream: KeyStream, n: int, ratio: Fraction) -> Ints:
    """n draws of floor(ratio x + 1/2) for a standard Laplace x, exactly; ratio <= 2^27."""
    return _rounded(stream, n, ratio, layers(EXPONENTIAL))


def gaussian(stream: KeyStream, n: int, ratio: Fraction) -> Ints:
    """n draws of floor(ratio x + 1/2) for a standard normal x, exactly; ratio <= 2^27."""
    return _rounded(stream, n, ratio, layers(NORMAL))


def _rounded(stream: KeyStream, n: int, ratio: Fraction, stack: Layers) -> Ints:
    out, step = np.empty(n, dtype=np.int64), stack.widths * float(ratio)
    for start in range(0, n, BLOCK):
        part = out[start : start + BLOCK]
        words, rare = settled_words(stream, len(part), stack)
        layer, place = split_words(words)
        y = place * step[layer] + 0.5
        part[:] = units = np.floor(y)
        y -= units
        for i in np.flatnonzero((y < MARGIN) | (y > 1.0 - MARGIN)):
            rare.setdefault(int(i), at_word(int(words[i]), stack, drawer(stream)))
        for at, x in rare.items():
            part[at] = x.rounded(ratio) * (1 if place[at] > 0 else -1)
    return out


def settled_words(stream: KeyStream, n: int, stack: Layers) -> tuple[Words, Rare]:
    """Words whose |x| has the density of the curve; the exceptions by their number.

    Left of `inside` a point is under the curve at any height of its layer. Other points get a
    uniform height, and another word in their stead if they lie above the curve.
    """
    words, draw = stream.words(n), drawer(stream)
    rare: Rare = {}
    left = np.arange(n)
    while True:
        layer, place = split_words(words[left])
        place = np.abs(place)
        unsettled = place >= stack.inside[layer]
        left, layer, place = left[unsettled], layer[unsettled], place[unsettled]
        if not len(left):
            return words, rare
        spare = stream.words(2 * len(left))
        heights, others = spare[: len(left)], spare[len(left) :]
        above = stack.lows[layer] + heights.astype(np.float64) * 2.0**-64 * stack.rooms[layer]
        above -= height_at(place * stack.widths[layer], stack.curve)
        doubtful = (np.abs(above) <= DOUBT) | ((layer == 0) & (place >= stack.beyond))
        refused = (above > 0.0) & ~doubtful
        for j in np.flatnonzero(doubtful):
            found = settle_attempt(int(words[left[j]]), int(heights[j]), stack, draw)
            refused[j] = found is None
            if found is not None:
                rare[int(left[j])] = found
        left = left[refused]
        words[left] = others[refused]


def split_words(words: Words) -> tuple[NDArray[np.intp], Ints]:
    """The layers and the signed places that words stand for."""
    return (words & np.uint64(LAYERS - 1)).astype(np.intp), words.view(np.int64) >> 10 | 1


def height_at(x: Floats, curve: DensityCurve) -> Floats:
    """e^-p(x), p(x) < 44, by additions and products alone: no library's exponential is trusted.

    With p = n ln 2 + r, |r| < .35, it is 2^-n times Taylor's polynomial of degree 13.
    """
    p = 0.5 * x * x if curve is NORMAL else x
    n = np.floor(p / LN2 + 0.5)
    r = n * LN2 - p
    total = np.full_like(r, TAYLOR[0])
    for term in TAYLOR[1:]:
        total = total * r + term
    return np.asarray(total * POWERS[n.astype(np.intp)])


def drawer(stream: KeyStream) -> Draw:
    """Words of a stream, one by one."""
    return lambda: int(stream.words(1)[0])


def at_word(word: int, stack: Layers, draw: Draw) -> LazyReal:
    """|x| of a word, its further digits to be drawn."""
    layer, place = (int(part[0]) for part in split_words(np.array([word], dtype=np.uint64)))
    # of the 53 bits of a place the last is always 1
    return LazyReal(draw, digits=abs(place) >> 1, bits=52, scale=stack.width(layer))


def settle_attempt(word: int, height: int, stack: Layers, draw: Draw) -> LazyReal | None:
    """Settle one attempt exactly, given its word and the first 64 digits of its height.

    None if the point lies above the curve. In the lowest layer what lies beyond R is the tail.
    """
    layer, end = word % LAYERS, stack.curve.end
    x = at_word(word, stack, draw)
    if layer == 0:
        while x.bounds()[0] < end < x.bounds()[1]:
            x.refine()
        if x.bounds()[0] >= end:
            return tail(stack, draw)
    base, room = Fraction(stack.low[layer], ONE), Fraction(stack.room[layer], ONE)
    y = LazyReal(draw, digits=height, bits=64, base=base, scale=room)
    return x if lazy_reals.under(stack.curve.power, x, y) else None


def tail(stack: Layers, draw: Draw) -> LazyReal | None:
    """One attempt at the tail: x = R + E / rate, a uniform height under the envelope there.

    The height V C e^-E is under the curve where V C <= e^-(p(x) - E), which grows less with E.
    """
    curve = stack.curve
    room = Fraction(curve.rate * (curve.area - curve.end * stack.room[0]), ONE)

    def excess(e: Fraction) -> Fraction:
        return curve.power(curve.end + e / curve.rate) - e

    e, height = lazy_reals.exponential(draw), LazyReal(draw, scale=room)
    height.refine()
    if not lazy_reals.under(excess, e, height):
        return None
    e.base, e.scale = curve.end + e.base / curve.rate, e.scale / curve.rate
    return e
