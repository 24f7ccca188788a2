"""Uniform, Gaussian and Laplace draws from random words, with their whole tails.

Symbols: w a 64-bit word, u a uniform number in (0, 1], r a radius, theta an angle.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privet.noise.key_stream import KeyStream, Words

Floats = NDArray[np.float64]

LOW_63 = np.int64(2**63 - 1)  # the top bit of a word is a sign
FINE = 2**53  # below it float64 has room for more digits than a whole number offers
BLOCK = 24 * 1024
"""Outputs made at a time: they fit the cache, and torch does not wake other threads below 2^15."""
CHUNK = 8 * BLOCK
"""Outputs made from one key; larger requests are cut into chunks with a key each."""


def refine_small(
    stream: KeyStream, magnitude: NDArray[np.int64]
) -> tuple[NDArray[np.intp], Floats]:
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


def uniform_from_words(stream: KeyStream, words: Words) -> Floats:
    """Uniform numbers in (0, 1] from the low 63 bits of each word."""
    magnitude = words.view(np.int64) & LOW_63
    u = magnitude.astype(np.float64)
    where, value = refine_small(stream, magnitude)
    u[where] = value
    u *= 2.0**-63
    return np.maximum(u, 2.0**-1074, out=u)  # the least float64 above 0


def uniform(stream: KeyStream, n: int) -> Floats:
    """Uniform numbers in the open interval (0, 1)."""
    u = uniform_from_words(stream, stream.words(n))
    return np.minimum(u, 1.0 - 2.0**-53, out=u)  # the largest float64 below 1


def stream_chunks(stream: KeyStream, n: int) -> list[tuple[KeyStream, int, int]]:
    """Cut n outputs into chunks, each with its own stream: (stream, start, stop)."""
    if n <= CHUNK:
        return [(stream, 0, n)]
    return [(stream.split(), i, min(i + CHUNK, n)) for i in range(0, n, CHUNK)]


def gaussian(stream: KeyStream, n: int) -> Floats:
    """Standard normal draws by Box and Muller (1958): a word, half a logarithm and a sine each.

    With u, v uniform, r = sqrt(-2 ln u) and theta = 2 pi v, the pair (r cos theta, r sin theta) is
    standard normal in the plane. The radius gets the whole range of
    `uniform_from_words` (up to 38.6), the angle 64 bits.
    """
    out = np.empty(n)
    for substream, start, stop in stream_chunks(stream, n):
        for i in range(start, stop, BLOCK):
            part = out[i : min(i + BLOCK, stop)]
            half = (len(part) + 1) // 2
            words = substream.words(2 * half)
            r = np.log(uniform_from_words(substream, words[:half]))
            r *= -2.0
            np.sqrt(r, out=r)
            theta = words[half:].view(np.int64) * (math.pi * 2.0**-63)
            np.multiply(r, np.cos(theta), out=part[:half])
            rest = len(part) - half
            np.multiply(r[:rest], np.sin(theta[:rest]), out=part[half:])
    return out


def laplace(stream: KeyStream, n: int) -> Floats:
    """Standard Laplace draws: the top bit of a word is the sign, the others make -ln u."""
    out = np.empty(n)
    for substream, start, stop in stream_chunks(stream, n):
        for i in range(start, stop, BLOCK):
            part = out[i : min(i + BLOCK, stop)]
            words = substream.words(len(part))
            np.log(uniform_from_words(substream, words), out=part)
            np.negative(part, out=part, where=words.view(np.int64) >= 0)
    return out
