"""Uniform, Gaussian and Laplace draws from random words, with their whole tails.

Symbols: w a 64-bit word, u a uniform number in (0, 1], r a radius, theta an angle.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privet.noise.stream import Stream, Words

Floats = NDArray[np.float64]

LOW_63 = np.int64(2**63 - 1)
FINE = 2**53
BLOCK = 24 * 1024
"""Outputs made at a time: they fit the cache, and torch does not wake other threads below 2^15."""
CHUNK = 8 * BLOCK
"""Outputs made from one key; larger requests are cut into chunks with a key each."""


def small(stream: Stream, magnitude: NDArray[np.int64]) -> tuple[NDArray[np.intp], Floats]:
    """Where a 63-bit integer has fewer than 53 bits, and the value it stands for with more bits.

    A uniform real u in [0, 1) has binary digits a, b, c, ... in groups of 63, 64, 64, ... bits.
    When a < 2^53 (once in 2^10 draws) float64 has room for more digits than a offers: they are
    drawn here. So u has 53 significant bits down to 2^-74, and digits go on being drawn until one
    is not zero:
    -ln u has no largest value short of float64's own, 744.
    """
    where = np.flatnonzero(magnitude < FINE)
    more = stream.words(len(where)).astype(np.float64) * 2.0**-64
    value = magnitude[where].astype(np.float64) + more
    for i in np.flatnonzero(value == 0.0):  # the first 127 digits are all zero: go on looking
        exponent = -64
        while (word := int(stream.words(1)[0])) == 0:
            exponent -= 64
        value[i] = math.ldexp(word, exponent - 64)
    return where, value


def unit(stream: Stream, words: Words) -> Floats:
    """Uniform numbers in (0, 1] from the low 63 bits of each word."""
    magnitude = words.view(np.int64) & LOW_63
    u = magnitude.astype(np.float64)
    where, value = small(stream, magnitude)
    u[where] = value
    u *= 2.0**-63
    return np.maximum(u, 2.0**-1074, out=u)


def uniform(stream: Stream, n: int) -> Floats:
    """Uniform numbers in the open interval (0, 1)."""
    u = unit(stream, stream.words(n))
    return np.minimum(u, 1.0 - 2.0**-53, out=u)


def pieces(stream: Stream, n: int) -> list[tuple[Stream, int, int]]:
    """Cut n outputs into chunks, each with its own stream: (stream, start, stop)."""
    if n <= CHUNK:
        return [(stream, 0, n)]
    return [(stream.split(), i, min(i + CHUNK, n)) for i in range(0, n, CHUNK)]


def gaussian(stream: Stream, n: int) -> Floats:
    """Standard normal draws by Box and Muller (1958).

    With u, v uniform, r = sqrt(-2 ln u) and theta = 2 pi v, the pair (r cos theta, r sin theta) is
    standard normal in the plane. The radius gets `unit`'s whole range (up to 38.6), the angle 64
    bits.
    """
    out = np.empty(n)
    for own, start, stop in pieces(stream, n):
        for i in range(start, stop, BLOCK):
            part = out[i : min(i + BLOCK, stop)]
            half = (len(part) + 1) // 2
            words = own.words(2 * half)
            r = np.log(unit(own, words[:half]))
            r *= -2.0
            np.sqrt(r, out=r)
            theta = words[half:].view(np.int64) * (math.pi * 2.0**-63)
            np.multiply(r, np.cos(theta), out=part[:half])
            rest = len(part) - half
            np.multiply(r[:rest], np.sin(theta[:rest]), out=part[half:])
    return out


def laplace(stream: Stream, n: int) -> Floats:
    """Standard Laplace draws: the top bit of a word is the sign, the others make -ln u."""
    out = np.empty(n)
    for own, start, stop in pieces(stream, n):
        for i in range(start, stop, BLOCK):
            part = out[i : min(i + BLOCK, stop)]
            words = own.words(len(part))
            np.log(unit(own, words), out=part)
            np.negative(part, out=part, where=words.view(np.int64) >= 0)
    return out


def bernoulli(stream: Stream, n: int, p: Fraction) -> NDArray[np.bool_]:
    """Exact coins: P[true] = p, to the last bit.

    Compare the binary digits of a uniform real with those of p, 64 at a time; a tie (probability
    2^-64) goes on to the next 64 digits.
    """
    if p >= 1 or p <= 0:
        return np.full(n, p >= 1)
    threshold, rest = divmod(p.numerator << 64, p.denominator)
    words = stream.words(n)
    out = words < np.uint64(threshold)
    for i in np.flatnonzero(words == np.uint64(threshold)):
        out[i] = bernoulli(stream, 1, Fraction(rest, p.denominator))[0]
    return out


def below(stream: Stream, n: int, high: int) -> Words:
    """Exactly uniform whole numbers in [0, high), high <= 2^63, by rejection of the ragged end."""
    limit = np.uint64((2**64 // high) * high - 1)
    out = stream.words(n)
    while len(bad := np.flatnonzero(out > limit)):
        out[bad] = stream.words(len(bad))
    return out % np.uint64(high)


def distinct(stream: Stream, n: int) -> Words:
    """n different words, uniform among all such lists: a list with a repeat is drawn again."""
    while True:
        words = stream.words(n)
        ordered = np.sort(words)
        if not np.any(ordered[1:] == ordered[:-1]):
            return words
