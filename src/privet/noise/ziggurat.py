"""Standard normal draws from random words, by the ziggurat, in compiled loops.

The area under f(x) = exp(-x^2 / 2), x >= 0, is covered by 1024 horizontal layers of equal area v
(Marsaglia and Tsang 2000). Layer j reaches from 0 to X[j + 1], at heights from f(X[j + 1]) to
f(X[j]); all of it left of X[j] lies under the curve. The last layer is the rectangle below f(R), R
= X[1023], together with the tail beyond R; its width X[1024] is that of a rectangle of area v.

A word chooses a layer and a signed place in it. Left of X[j] (99.6% of words) that place is the
draw. Otherwise it is *settled*: a uniform height decides whether the point lies under the curve, if
not another word is taken; beyond R the tail is drawn, by Marsaglia's method (1964). No step is an
approximation, so the law is the normal one but for the resolution of the numbers (docs/theory).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from privet.noise.stream import Words

Floats = NDArray[np.float64]
P = ParamSpec("P")
T = TypeVar("T")

LAYERS = 1024
R = 4.0388498461095045
"""Where the tail begins: the number that makes the layers close at height 1 (a test solves it)."""
SPARE = 2
"""Words that one attempt to settle a draw may need."""


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Machine code on first use, kept on disk where that is possible.

    Strict floating point: nothing is contracted or reordered, so that results are the same on every
    processor and a rounding done by addition is not optimised away.
    """
    try:
        return numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep it in
        return numba.njit(error_model="numpy")(function)


def layers(start: float = R) -> Floats:
    """X[0] = 0 to X[1024], for a tail that begins at `start`.

    >>> x = layers()
    >>> float(x[-2]) == R, bool((x[1:] > x[:-1]).all())
    (True, True)
    """
    height = math.exp(-0.5 * start * start)
    area = start * height + math.sqrt(math.pi / 2.0) * math.erfc(start / math.sqrt(2.0))
    x = np.zeros(LAYERS + 1)
    x[-1], x[-2] = area / height, start
    for j in range(LAYERS - 2, 0, -1):
        height += area / x[j + 1]
        x[j] = math.sqrt(-2.0 * math.log(height))
    return x


_X = layers()
_WIDTH = _X[1:] * 2.0**-53
_INSIDE = np.floor(_X[:-1] / _X[1:] * 2.0**53).astype(np.int64)
_HEIGHT = np.exp(-0.5 * _X * _X)
_LAST, _MASK = LAYERS - 1, np.uint64(LAYERS - 1)


@compiled
def candidates(words: Words, out: Floats, open_: NDArray[np.bool_]) -> None:
    """The draws, and which of them are still to be settled.

    The low 10 bits of a word choose the layer. The others, with the lowest of them set, are an odd
    number between -2^53 and 2^53: the place.
    """
    for i in range(len(words)):
        layer = words[i] & _MASK
        place = (np.int64(words[i]) >> 10) | 1
        out[i] = np.float64(place) * _WIDTH[layer]
        open_[i] = abs(place) >= _INSIDE[layer]


@compiled
def settle(words: Words, spare: Words, out: Floats, open_: NDArray[np.bool_], start: int) -> int:
    """Settle the open draws from `start` on; where the spare words ran out, the end if they lasted.

    The draw at the place returned is open still, its word in `words`: call again with other spare
    words. Every attempt uses new ones, and is made only if they are there.
    """
    eights, used = open_.view(np.uint64), 0
    for eight in range(start // 8, len(eights)):
        if eights[eight] == 0:
            continue
        for i in range(max(start, 8 * eight), 8 * eight + 8):
            while open_[i]:
                if used + SPARE > len(spare):
                    return i
                layer = np.int64(words[i] & _MASK)
                place = (np.int64(words[i]) >> 10) | 1
                x = np.float64(place) * _WIDTH[layer]
                first, second = spare[used], spare[used + 1]
                used += SPARE
                if abs(place) < _INSIDE[layer]:
                    out[i], open_[i] = x, False
                elif layer == _LAST:
                    beyond = _exponential(first) / R
                    if 2.0 * _exponential(second) >= beyond * beyond:
                        out[i], open_[i] = math.copysign(R + beyond, x), False
                else:
                    room = _HEIGHT[layer] - _HEIGHT[layer + 1]
                    height = _HEIGHT[layer + 1] + np.float64(first) * 2.0**-64 * room
                    if height < math.exp(-0.5 * x * x):
                        out[i], open_[i] = x, False
                    else:
                        words[i] = second
    return len(open_)


@compiled
def _exponential(word: np.uint64) -> float:
    """-ln u of a uniform u with 53 significant bits, at least 2^-65."""
    return -math.log((np.float64(word) + 0.5) * 2.0**-64)
