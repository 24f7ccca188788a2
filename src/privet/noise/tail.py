"""Which draws of a long row of normal draws lie in the tail, and where in the tail they lie.

Inversion turns a uniform u in (-1, 1) into the normal draw sqrt(2) erfinv(u), but float64 has few
numbers near 1 and -1. So the 2^-10 of all draws that lie beyond 3.29 are made apart, as the law
allows: every draw is in the tail with probability 2^-10, by itself; the others have u uniform in
(-BODY, BODY); those in the tail have a probability of being exceeded that is uniform below 2^-10.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privet.noise.continuous import Floats, unit
from privet.noise.stream import Stream

RATE = 2.0**-10
"""The share of draws in the tail; the resolution of u elsewhere is derived from it in the docs."""
BODY = 1.0 - RATE
_FURTHEST = 2.0**-1074


def places(stream: Stream, n: int) -> NDArray[np.int64]:
    """The ascending places among 0 to n - 1 that exact coins with probability RATE would choose.

    The number of failures before a success is k or more with probability (1 - RATE)^k, so it is
    floor(ln u / ln(1 - RATE)) for a uniform u.
    """
    found: list[NDArray[np.int64]] = []
    last = -1
    while last < n:
        expected = (n - last) * RATE
        some = math.ceil(expected + 4.0 * math.sqrt(expected))
        gaps = np.floor(np.log(unit(stream, stream.words(some))) / math.log1p(-RATE))
        found.append(last + np.cumsum(gaps.astype(np.int64) + 1))
        last = int(found[-1][-1])
    every = np.concatenate(found)
    return every[: np.searchsorted(every, n)]


def values(stream: Stream, n: int) -> Floats:
    """n standard normal draws, given that they lie in the tail.

    |x| is exceeded with probability RATE u, so x = -+ the quantile at RATE u / 2: from 3.29 to 38.5
    with `unit`'s full resolution. The top bit of the word is the sign.
    """
    words = stream.words(n)
    one_side = np.maximum(unit(stream, words) * (0.5 * RATE), _FURTHEST)
    quantiles: Floats = special.ndtri(one_side)
    return np.copysign(quantiles, words.view(np.int64))


def tail(stream: Stream, n: int) -> tuple[NDArray[np.int64], Floats]:
    """The places of the tail among n draws, and the draws there."""
    where = places(stream, n)
    return where, values(stream, len(where))
