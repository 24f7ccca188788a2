"""Normal noise written straight into torch tensors, fast; the only module that needs torch.

The draws are those of `privet.noise.rounded_noise` in compiled loops: the same layers, the same
bounds on float64's errors, the same exact answers where these do not decide (docs/theory/noise.md);
99.5% of all words end in the first loop, `candidates`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ParamSpec, TypeVar, final

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.noise import grid
from privet.noise.key_stream import Bulk, Words
from privet.noise.rounded_noise import POWERS, TAYLOR, at_word, settle_attempt
from privet.noise.source import Source
from privet.noise.ziggurat import LAYERS, NORMAL, layers

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
P = ParamSpec("P")
T = TypeVar("T")

DONE, EMPTY, CELL, HEIGHT = 0, 1, 2, 3
"""What `settle` comes back with: nothing, no spare words, a cell or a height it cannot tell."""


def compile_on_first_use(function: Callable[P, T]) -> Callable[P, T]:
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
_MASK = np.uint64(LAYERS - 1)  # the low bits of a word choose the layer
_MIDDLE = 1.5 * 2.0**52
"""Added and taken away again, it rounds to the nearest whole number."""
_SURE = 0.5 - 2.0**-20
"""So near to a whole number, ratio x is nearest to it, whatever float64 does for |x| <= 6.01."""
_FEW = 512  # words a round: their places stay in the first cache
_DOUBT, _LN2 = 2.0**-44, math.log(2.0)
"""As in `rounded_noise`. Tables are arguments of the loops: machine code kept on disk must not hold
them, since nothing would renew it when they change."""


@compile_on_first_use
def candidates(words: Words, out: Floats, open_: Bools, steps: Floats, inside: Floats) -> None:
    """The draws in steps of the grid, and which of them are still to be settled."""
    places = np.empty(_FEW)
    for start in range(0, len(words), _FEW):
        some = words[start : start + _FEW]
        units, undecided = out[start : start + _FEW], open_[start : start + _FEW]
        for i in range(len(some)):  # by itself: only a loop without tables becomes vector code
            places[i] = np.float64((np.int64(some[i]) >> 10) | 1)
        for i in range(len(some)):
            layer = some[i] & _MASK
            y = places[i] * steps[layer]
            unit = (y + _MIDDLE) - _MIDDLE
            units[i] = unit
            undecided[i] = (abs(places[i]) >= inside[layer]) | (abs(y - unit) > _SURE)


@compile_on_first_use
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


@compile_on_first_use
def _curve(x: float, taylor: tuple[Floats, Floats]) -> float:
    """`rounded_noise.height_at` of one number, for the normal curve."""
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
            else settle_attempt(word, int(spare[used - 2]), _STACK, draw)
        )
        if x is None:
            words[at] = spare[used - 1]
        else:
            units = x.rounded(Fraction(ratio))
            out[at], open_[at] = -units if word >> 63 else units, False


BLOCK = 31 * 1024
"""Outputs made at a time: they fit the cache."""
CHUNK = 1024 * BLOCK
"""Outputs made from one key: far below the 2^36 bytes that one key of GCM serves."""
LARGEST = 2.0**50
"""Values are held within this number of grid steps: at least 2^23 standard deviations."""


@final
@dataclass(frozen=True, kw_only=True)
class Places:
    """Which numbers of a vector of `total` a tensor holds: ascending runs [start, stop)."""

    total: int
    runs: tuple[tuple[int, int], ...]


def gaussian_(tensor: torch.Tensor, scale: float, source: Source) -> torch.Tensor:
    """Fill a contiguous float64 or float32 tensor with normal noise, rounded to the public grid.

    The law of `Source.gaussian_on_grid`, not the same draws; float32 is a last rounding.

    **Guarantee** none by itself: in float32, adding this to a value leaves that value's traces in
    the low bits. Use `add_gaussian_` for what is released.

    >>> import torch; from privet.noise import seeded
    >>> x = torch.empty(100_000, dtype=torch.float64)
    >>> round(float(gaussian_(x, 2.0, seeded(0)).std()), 1)
    2.0
    """
    step = grid.spacing(scale)
    for part, units in _parts(_flat(tensor), scale / step, source):
        np.multiply(units, step, out=units)
        part[:] = units
    return tensor


def add_gaussian_(
    tensor: torch.Tensor,
    scale: float,
    source: Source,
    *,
    places: Places | None = None,
) -> torch.Tensor:
    """Add normal noise of this scale on the public grid, in place; returns the tensor.

    Value and noise are rounded to g = `grid.spacing(scale)` and added exactly (see
    `privet.noise.grid`). A float32 result is rounded once more, to the coarser
    `grid.spacing(scale, bits=grid.BITS_FLOAT32)`. Values are held within 2^50 g.

    Rounding to multiples of g is addition of M = 1.5 2^52 g: float64 numbers within 2^51 g of M are
    the multiples of g there. So v + M is round_g(v) + M, and both the noise, a multiple of g, and M
    are added and taken away exactly.

    **Guarantee** that of the ideal Gaussian mechanism at sensitivity
    `grid.l2_after_rounding(sensitivity, dimension=max(2, tensor.numel()),
    step=grid.spacing(scale))`: halves go to even here, and one coordinate has no better bound. The
    noise is the rounding of a real normal draw *exactly* (`fill`), and how long it
    takes does not depend on the values.

    With `places` the tensor gets the noise that its numbers would get in the longer vector; what
    lies between is drawn and thrown away.

    **Assumes** the tensor is finite and has the sensitivity that the caller declares; not checked.
    """
    flat, step = _flat(tensor), grid.spacing(scale)
    coarse = grid.spacing(scale, bits=grid.BITS_FLOAT32)
    narrow = flat.dtype == np.float32
    drawn = _parts if places is None else partial(_parts_at, places)
    for part, units in drawn(flat, scale / step, source):
        if narrow:
            _add_narrow(part, units, step, coarse)
        else:
            _add_wide(part, units, step)
    return tensor


def add_noise_(
    tensor: torch.Tensor,
    *,
    sensitivity: float,
    noise_multiplier: float,
    source: Source,
    places: Places | None = None,
) -> float:
    """Make a Gaussian release of a sum, in place; returns the standard deviation of its noise.

    With `places` the tensor is one process's part of the sum and the others release theirs: a
    secret source draws the noise of these numbers alone, a seeded one, which all processes share,
    that of the whole sum.

    **Guarantee** mu = 1 / noise_multiplier, for sums that a unit moves by at most `sensitivity`,
    all parts together.
    """
    scale = grid.noise_scale(
        sensitivity=sensitivity,
        noise_multiplier=noise_multiplier,
        dimension=tensor.numel() if places is None else places.total,
    )
    add_gaussian_(tensor, scale, source, places=None if source.secret else places)
    return scale


@compile_on_first_use
def _add_narrow(part: Any, units: Floats, step: float, coarse: float) -> None:
    limit, middle, wide = LARGEST * step, _MIDDLE * step, _MIDDLE * coarse
    largest = np.float64(np.finfo(np.float32).max)
    for i in range(len(part)):
        value = min(max(np.float64(part[i]), -limit), limit)
        total = ((value + middle) + units[i] * step) - middle
        total = (total + wide) - wide
        part[i] = np.float32(min(max(total, -largest), largest))


@compile_on_first_use
def _add_wide(part: Floats, units: Floats, step: float) -> None:
    limit, middle = LARGEST * step, _MIDDLE * step
    for i in range(len(part)):
        value = min(max(part[i], -limit), limit)
        part[i] = ((value + middle) + units[i] * step) - middle


def _flat(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.dtype not in (torch.float64, torch.float32):
        raise InvalidArgument("tensor", tensor.dtype, "of type float64 or float32")
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise InvalidArgument("tensor", tensor.stride(), "contiguous and on the CPU")
    flat: NDArray[Any] = tensor.detach().view(-1).numpy()
    return flat


def _parts(
    flat: NDArray[Any], ratio: float, source: Source
) -> Iterator[tuple[NDArray[Any], Floats]]:
    """Cache-sized parts of an array, each with its noise in steps (the same memory every time)."""
    for chunk in range(0, len(flat), CHUNK):
        bulk, end = source.stream.bulk(), min(chunk + CHUNK, len(flat))
        for start in range(chunk, end, BLOCK):
            part = flat[start : min(start + BLOCK, end)]
            yield part, _workspace.draw(bulk, len(part), ratio)


def _parts_at(
    places: Places, flat: NDArray[Any], ratio: float, source: Source
) -> Iterator[tuple[NDArray[Any], Floats]]:
    """The parts of an array that is spread over a longer one, with the noise of their places.

    Blocks and keys are those of `_parts` for the longer array.
    """
    begin, coming = 0, [(a, b) for a, b in places.runs if b > a]
    for chunk in range(0, places.total, CHUNK):
        bulk, end = source.stream.bulk(), min(chunk + CHUNK, places.total)
        for start in range(chunk, end, BLOCK):
            after = min(start + BLOCK, end)
            units = _workspace.draw(bulk, after - start, ratio)
            while coming and coming[0][0] < after:
                a, b = coming[0]
                stop = min(b, after)
                yield flat[begin : begin + stop - a], units[a - start : stop - start]
                begin += stop - a
                coming[:1] = [(stop, b)] if stop < b else []


class _Workspace(threading.local):
    """Buffers of a thread, kept: fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        # a 32nd more, to settle with: 1 word in 200 takes two; where it is not enough more are made
        self.words = np.empty(BLOCK + BLOCK // 32, dtype=np.uint64)
        self.noise = np.empty(BLOCK)
        self.open = np.zeros(BLOCK, dtype=np.bool_)

    def draw(self, bulk: Bulk, n: int, ratio: float) -> Floats:
        """n normal draws in steps, in memory that the next call overwrites."""
        whole = -(-n // 8) * 8
        used = self.words[: whole + BLOCK // 32]
        bulk.fill(used)
        noise = self.noise[:whole]
        fill(used[:whole], used[whole:], noise, self.open[:whole], ratio=ratio, bulk=bulk)
        return noise[:n]


_workspace = _Workspace()
