"""Poisson subsets of very many records: exact coins of one probability p, in few words.

Symbols: p the probability, q = 1 - p, G the number of places skipped before the next member.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privet.noise.discrete_noise import bernoulli
from privet.noise.key_stream import KeyStream

Ints = NDArray[np.int64]
_SKIPS = 2**14  # drawn at a time, at most; each takes a word for every binary digit of n


def poisson_subset(stream: KeyStream, n: int, p: Fraction) -> Ints:
    """The numbers below n, ascending, that each belong by an independent coin of exactly p.

    The law is that of `bernoulli`, whichever way is shorter: a word for every 8 numbers or so, or
    a word for every binary digit of n and every member.

    >>> from privet.noise.key_stream import KeyStream
    >>> poisson_subset(KeyStream(b"a key", secret=False), 10**9, Fraction(3, 10**9)).size < 20
    True
    """
    if n == 0 or p <= 0 or p > Fraction(1, 2):
        return np.flatnonzero(bernoulli(stream, n, p)).astype(np.int64)
    # skips take a word for each digit of n and member, bits n / 8 words: measured for n of 10^5 and
    # 10^6, both take as long at p = 1 / 4 digits. 2^14 skips below 2^46 add up within int64
    if 4 * n.bit_length() * p < 1 and n < 2**46:
        return _by_skips(stream, n, p)
    return _by_bits(stream, n, p)


def _by_bits(stream: KeyStream, n: int, p: Fraction) -> Ints:
    """Members by the bits of words, for p of 1/2 or less.

    p = 2^-k r with 1/2 < r <= 1. A bit of k random words joined by "and" is set with probability
    2^-k, to the last bit, and independently of all others; so is a number if each of the 64 bits of
    a word stands for one. What is left stays by an exact coin of probability r. Where all 64 are
    gone nothing more is drawn: some n / 8 words in all for p below 2^-6, in place of n.
    """
    k = 0
    while 2 * p <= 1:
        p, k = 2 * p, k + 1
    bits = stream.words(-(-n // 64))
    where = np.arange(len(bits), dtype=np.int64)
    for _ in range(k - 1):
        bits &= stream.words(len(bits))
        if 2 * np.count_nonzero(bits) < len(bits):
            left = bits != 0
            bits, where = bits[left], where[left]
    word, bit = np.nonzero(np.unpackbits(bits.view(np.uint8), bitorder="little").reshape(-1, 64))
    found = 64 * where[word] + bit
    found = found[found < n]
    return found[bernoulli(stream, len(found), p)]


def _by_skips(stream: KeyStream, n: int, p: Fraction) -> Ints:
    """Members by how many numbers lie before the next one, for rare members.

    With independent coins the skips are independent and P[G >= g] = q^g; with independent skips of
    that law the coins are what they should be. What was drawn past the end is not used.
    """
    digits = n.bit_length()  # a skip that needs more of them leads past the end
    parts: list[Ints] = []
    last = -1
    while last < n:
        expected = float((n - 1 - last) * p)
        # four deviations more than expected: mostly once is enough
        count = min(_SKIPS, math.ceil(expected + 4.0 * math.sqrt(expected) + 8.0))
        skips, beyond = _skips(stream, count, p, digits)
        places = last + np.cumsum(np.where(beyond, n, skips) + 1)
        parts.append(places[places < n])
        last = int(places[-1])
    return np.concatenate(parts)


def _skips(
    stream: KeyStream, count: int, p: Fraction, digits: int
) -> tuple[Ints, NDArray[np.bool_]]:
    """G modulo 2^digits, and whether G is as large as that or larger, for independent skips.

    The binary digits of G are independent: q^G is a product of one factor for each digit. Digit j
    is 1 with probability q^(2^j) / (1 + q^(2^j)), and what is above them all is not zero with
    probability q^(2^digits). Each is compared with random digits as `bernoulli` does.
    """
    limits = np.array(_probabilities(p, digits, 64), dtype=np.uint64)[:, None]
    words = stream.words((digits + 1) * count).reshape(digits + 1, count)
    ones = words < limits
    for which, i in np.argwhere(words == limits):
        ones[which, i] = _next_digits(stream, p, digits, int(which))
    powers = np.int64(1) << np.arange(digits, dtype=np.int64)
    return powers @ ones[:-1], ones[-1]


def _next_digits(stream: KeyStream, p: Fraction, digits: int, which: int) -> bool:
    """The coin of a chance whose first 64 digits did not decide."""
    bits = 128  # the next 64 digits
    while True:
        limit = _probabilities(p, digits, bits)[which] % 2**64
        word = int(stream.words(1)[0])
        if word != limit:
            return word < limit
        bits += 64


@functools.lru_cache(maxsize=64)  # a run has one p or a few; an entry is some 60 numbers
def _probabilities(p: Fraction, digits: int, bits: int) -> tuple[int, ...]:
    """The first `bits` binary digits of every chance of `_skips`, as whole numbers.

    Powers of q are kept between two whole numbers over 2^precision, rounded outwards; if both
    bounds of a chance have the same first digits, so has the chance. Else they are made finer. That
    comes to an end: a chance whose digits end is either that of digit 0, a fraction that is taken
    as it is (with q = a/b in lowest terms, a^m + b^m is no power of two for even m), or a power of
    q whose own digits end, which a finer precision holds exactly.
    """
    q = 1 - p
    first = (q.numerator << bits) // (q.numerator + q.denominator)
    precision = bits + digits + 64  # a digit lost at each squaring, and 64 that decide
    while True:
        one = 1 << precision
        low = (q.numerator << precision) // q.denominator
        high = -(-(q.numerator << precision) // q.denominator)
        found = [(first, first)]
        for j in range(1, digits + 1):
            low, high = low * low >> precision, -(-high * high >> precision)
            if j < digits:
                found.append(((low << bits) // (one + low), (high << bits) // (one + high)))
        found.append((low << bits >> precision, high << bits >> precision))
        if all(below == above for below, above in found):
            return tuple(below for below, _ in found)
        precision *= 2
