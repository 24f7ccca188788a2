"""The normal draws of `privet.noise.rounded` in compiled loops, for tensors with many coordinates.

The same layers, the same bounds on float64's errors, the same exact answers where these do not
decide (docs/theory/noise.md); 99.5% of all words end in the first loop, `candidates`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import ParamSpec, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from privet.noise.layers import LAYERS, NORMAL, layers
from privet.noise.rounded import POWERS, TAYLOR, at_word, judge
from privet.noise.stream import Bulk, Words

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
P = ParamSpec("P")
T = TypeVar("T")

DONE, EMPTY, CELL, HEIGHT = 0, 1, 2, 3
"""What `settle` comes back with: nothing, no spare words, a cell or a height it cannot tell."""


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Machine code on first use, kept on disk where that is possible.

    Strict floating point: nothing is contracted or reordered, so that results are the same on every
    processor and a rounding done by addition is not optimised away.
    """
    try:
        return numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep it in
        return numba.njit(error_model="numpy")(function)


_STACK = layers(NORMAL)
_INSIDE = _STACK.inside.astype(np.float64)
_MASK = np.uint64(LAYERS - 1)
_MIDDLE = 1.5 * 2.0**52
"""Added and taken away again, it rounds to the nearest whole number."""
_SURE = 0.5 - 2.0**-20
"""So near to a whole number, ratio x is nearest to it, whatever float64 does for |x| <= 6.01."""
_DOUBT, _LN2 = 2.0**-44, math.log(2.0)
"""As in `rounded`. Tables are arguments of the loops: machine code kept on disk must not hold them,
since nothing would renew it when they change."""


@compiled
def candidates(words: Words, out: Floats, open_: Bools, steps: Floats, inside: Floats) -> None:
    """The draws in steps of the grid, and which of them are still to be settled."""
    for i in range(len(words)):
        layer = words[i] & _MASK
        place = np.float64((np.int64(words[i]) >> 10) | 1)
        y = place * steps[layer]
        unit = (y + _MIDDLE) - _MIDDLE
        out[i] = unit
        open_[i] = (abs(place) >= inside[layer]) | (abs(y - unit) > _SURE)


@compiled
def settle(
    words: Words,
    spare: Words,
    out: Floats,
    open_: Bools,
    steps: Floats,
    stack: tuple[Floats, Floats, Floats, Floats, int],
    taylor: tuple[Floats, Floats],
    start: int,
    used: int,
) -> tuple[int, int, int]:
    """Settle the open draws from `start` on: where it stopped, spare words used, and why.

    Every attempt uses two new spare words, for a height and for another word if it fails.
    """
    inside, widths, lows, rooms, beyond = stack
    eights = open_.view(np.uint64)
    for eight in range(start // 8, len(eights)):
        if eights[eight] == 0:
            continue
        for i in range(max(start, 8 * eight), 8 * eight + 8):
            while open_[i]:
                layer = words[i] & _MASK
                place = np.float64((np.int64(words[i]) >> 10) | 1)
                if abs(place) >= inside[layer]:
                    if used + 2 > len(spare):
                        return i, used, EMPTY
                    used += 2
                    height = lows[layer] + np.float64(spare[used - 2]) * 2.0**-64 * rooms[layer]
                    above = height - _curve(place * widths[layer], taylor)
                    if abs(above) <= _DOUBT or (layer == 0 and abs(place) >= beyond):
                        return i, used, HEIGHT
                    if above > 0.0:
                        words[i] = spare[used - 1]
                        continue
                y = place * steps[layer]
                unit = (y + _MIDDLE) - _MIDDLE
                if abs(y - unit) > _SURE:
                    return i, used, CELL
                out[i], open_[i] = unit, False
    return len(open_), used, DONE


@compiled
def _curve(x: float, taylor: tuple[Floats, Floats]) -> float:
    """`rounded.height_at` of one number, for the normal curve."""
    terms, powers = taylor
    p = 0.5 * x * x
    n = np.floor(p / _LN2 + 0.5)
    r = n * _LN2 - p
    total = float(terms[0])
    for k in range(1, len(terms)):
        total = total * r + terms[k]
    return float(total * powers[int(n)])


_TABLES = (_INSIDE, _STACK.widths, _STACK.lows, _STACK.rooms, _STACK.beyond)
_TAYLOR = (TAYLOR, POWERS)


def fill(
    words: Words, spare: Words, out: Floats, open_: Bools, *, ratio: float, bulk: Bulk
) -> None:
    """Fill `out`, whose length is a multiple of 8, with exactly rounded draws, in steps."""
    steps, more = _STACK.widths * ratio, np.empty(2, dtype=np.uint64)

    def draw() -> int:
        bulk.fill(more)
        return int(more[0])

    candidates(words, out, open_, steps, _INSIDE)
    at, used = 0, 0
    while True:
        at, used, why = settle(words, spare, out, open_, steps, _TABLES, _TAYLOR, at, used)
        if why == DONE:
            return
        if why == EMPTY:
            bulk.fill(spare)
            used = 0
            continue
        word = int(words[at])
        x = (
            at_word(word, _STACK, draw)
            if why == CELL
            else judge(word, int(spare[used - 2]), _STACK, draw)
        )
        if x is None:
            words[at] = spare[used - 1]
        else:
            units = x.rounded(Fraction(ratio))
            out[at], open_[at] = -units if word >> 63 else units, False
