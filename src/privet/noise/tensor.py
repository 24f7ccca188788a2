"""Normal noise written straight into torch tensors, fast; the only module that needs torch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.noise import grid
from privet.noise.source import Source, seeded
from privet.noise.stream import Bulk
from privet.noise.ziggurat import Floats, compiled, fill

BLOCK = 31 * 1024
"""Outputs made at a time: they fit the cache."""
CHUNK = 1024 * BLOCK
"""Outputs made from one key."""
LARGEST = 2.0**50
"""Values are held within this number of grid steps: at least 2^23 standard deviations."""
_MIDDLE = 1.5 * 2.0**52


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
    noise is the rounding of a real normal draw *exactly* (`privet.noise.ziggurat`), and how long it
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


def make_ready() -> None:
    """Compile the loops now, so that what can fail there fails before a budget is charged."""
    for dtype in (torch.float32, torch.float64):
        own = seeded(0).child("ready", str(dtype))
        add_gaussian_(torch.zeros(8, dtype=dtype), 1.0, own)


@compiled
def _add_narrow(part: Any, units: Floats, step: float, coarse: float) -> None:
    limit, middle, wide = LARGEST * step, _MIDDLE * step, _MIDDLE * coarse
    largest = np.float64(np.finfo(np.float32).max)
    for i in range(len(part)):
        value = min(max(np.float64(part[i]), -limit), limit)
        total = ((value + middle) + units[i] * step) - middle
        total = (total + wide) - wide
        part[i] = np.float32(min(max(total, -largest), largest))


@compiled
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
