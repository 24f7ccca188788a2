"""Exact coins, whole numbers, discrete Laplace and discrete Gaussian draws from random words.

No floating-point number takes part: probabilities are ratios of Python integers, and every coin is
decided by comparing random binary digits with the exact digits of its probability. The algorithms
are those of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
algorithms 1 to 3, run on whole arrays: values that occur many times share one table entry.

Symbols: gamma the exponent, t and s the numerator and denominator of a scale, y a Laplace draw.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.noise.key_stream import KeyStream, Words

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def bernoulli(stream: KeyStream, n: int, p: Fraction) -> NDArray[np.bool_]:
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


def uniform_below(stream: KeyStream, n: int, high: int) -> Words:
    """Exactly uniform whole numbers in [0, high), high <= 2^63, by rejection of the ragged end."""
    limit = np.uint64((2**64 // high) * high - 1)
    out = stream.words(n)
    while len(bad := np.flatnonzero(out > limit)):
        out[bad] = stream.words(len(bad))
    return out % np.uint64(high)


def distinct_words(stream: KeyStream, n: int) -> Words:
    """n different words, uniform among all such lists: a list with a repeat is drawn again."""
    while True:
        words = stream.words(n)
        ordered = np.sort(words)
        if not np.any(ordered[1:] == ordered[:-1]):
            return words


def _coins(stream: KeyStream, index: NDArray[np.intp], above: list[int], whole: int) -> Bools:
    """Exact coins: the i-th is true with probability above[index[i]] / whole, each in [0, 1]."""
    limit = np.array([min((a << 64) // whole, 2**64 - 1) for a in above], dtype=np.uint64)[index]
    sure = np.array([a >= whole for a in above], dtype=np.bool_)[index]
    words = stream.words(len(index))
    for i in np.flatnonzero((words == limit) & ~sure):  # 64 digits agree: look at the next ones
        rest = (above[index[i]] << 64) % whole
        sure[i] = bernoulli(stream, 1, Fraction(rest, whole))[0]
    return np.asarray((words < limit) | sure)


def _exp_fraction(
    stream: KeyStream, index: NDArray[np.intp], above: list[int], whole: int
) -> Bools:
    """Exact coins with probability exp(-gamma), gamma = above[index[i]] / whole in [0, 1].

    Toss coins with probabilities gamma/1, gamma/2, gamma/3, ... until one fails; the number K of
    the failing toss is odd with probability 1 - gamma + gamma^2/2 - ... = exp(-gamma) (algorithm
    1).
    """
    failed_at = np.zeros(len(index), dtype=np.int64)
    running = np.arange(len(index))
    k = 1
    while len(running):
        used, inverse = np.unique(index[running], return_inverse=True)
        heads = _coins(stream, inverse, [above[j] for j in used], whole * k)
        failed_at[running[~heads]] = k
        running = running[heads]
        k += 1
    return np.asarray(failed_at % 2 == 1)


def _exp_one(stream: KeyStream, n: int) -> Bools:
    """Toss n exact coins with probability exp(-1)."""
    return _exp_fraction(stream, np.zeros(n, dtype=np.intp), [1], 1)


def bernoulli_exp(
    stream: KeyStream, index: NDArray[np.intp], above: list[int], whole: int
) -> Bools:
    """Exact coins with probability exp(-gamma), any gamma = above[index[i]] / whole >= 0.

    exp(-gamma) is a product of floor(gamma) factors exp(-1) and one exp(-(gamma - floor(gamma))).
    """
    out = _exp_fraction(stream, index, [a % whole for a in above], whole)
    # more than 2^40 factors in a row never succeed within the life of the universe
    left = np.array([min(a // whole, 2**40) for a in above], dtype=np.int64)[index]
    while len(running := np.flatnonzero(out & (left > 0))):
        out[running] = _exp_one(stream, len(running))
        left[running] -= 1
    return out


def _table(values: NDArray[Any]) -> tuple[list[int], NDArray[np.intp]]:
    """The distinct values as Python integers, and where each array element is among them."""
    used, inverse = np.unique(values, return_inverse=True)
    return used.tolist(), inverse


def _geometric(stream: KeyStream, n: int) -> Ints:
    """How many exp(-1) coins succeed before the first failure."""
    out = np.zeros(n, dtype=np.int64)
    running = np.arange(n)
    while len(running):
        running = running[_exp_one(stream, len(running))]
        out[running] += 1
    return out


def _laplace_batch(stream: KeyStream, n: int, scale: Fraction) -> Ints:
    """At most n draws: the rejected ones are left out."""
    t, s = scale.numerator, scale.denominator
    u = uniform_below(stream, n, t)
    values, index = _table(u)
    u = u[bernoulli_exp(stream, index, values, t)]
    v = _geometric(stream, len(u))
    # x = u + t v is geometric with ratio exp(-1/t); in Python integers where t is large: up to 2^40
    # it fits int64 while v < 2^22, and more has a chance of e^-4000000
    x = (
        u.astype(object) + t * v.astype(object)
        if t > 2**40 or s > 2**62
        else u.astype(np.int64) + t * v
    )
    y = (x // s).astype(np.int64)
    negative = stream.words(len(y)) >> np.uint64(63) == 1
    keep = ~(negative & (y == 0))  # zero must not be counted once for each sign
    return np.asarray(np.where(negative, -y, y)[keep])


def laplace(stream: KeyStream, n: int, scale: Fraction) -> Ints:
    """Exact draws with P[x] proportional to exp(-|x| / scale) (algorithm 2)."""
    out = np.empty(0, dtype=np.int64)
    while len(out) < n:
        batch = _laplace_batch(stream, 2 * (n - len(out)) + 16, scale)
        out = np.concatenate([out, batch])
    return out[:n]


def gaussian(stream: KeyStream, n: int, variance: Fraction) -> Ints:
    """Exact draws with P[x] proportional to exp(-x^2 / (2 variance)) (algorithm 3).

    Draw y from the discrete Laplace law of scale t = floor(sigma) + 1 and keep it with probability
    exp(-(|y| - variance/t)^2 / (2 variance)): the product of the two is exp(-y^2 / (2 variance)) up
    to a constant.
    """
    p, q = variance.numerator, variance.denominator
    t = math.isqrt(p // q) + 1  # floor(sqrt(x)) = floor(sqrt(floor(x)))
    out = np.empty(0, dtype=np.int64)
    while len(out) < n:
        y = laplace(stream, 2 * (n - len(out)) + 16, Fraction(t))
        sizes, index = _table(np.abs(y))
        above = [(size * t * q - p) ** 2 for size in sizes]
        out = np.concatenate([out, y[bernoulli_exp(stream, index, above, 2 * p * q * t * t)]])
    return out[:n]
