"""Normal noise written straight into torch tensors, fast; the only module that needs torch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument
from privet.noise import grid
from privet.noise.source import Source, seeded
from privet.noise.stream import Bulk
from privet.noise.ziggurat import Floats, candidates, compiled, settle

BLOCK = 31 * 1024
"""Outputs made at a time: they fit the cache."""
CHUNK = 1024 * BLOCK
"""Outputs made from one key."""
LARGEST = 2.0**50
"""Values are held within this number of grid steps: at least 2^23 standard deviations."""
_MIDDLE = 1.5 * 2.0**52


def gaussian_(tensor: torch.Tensor, scale: float, source: Source) -> torch.Tensor:
    """Fill a contiguous float64 or float32 tensor with normal noise; returns it.

    By the ziggurat (`privet.noise.ziggurat`), always computed in float64, float32 being a last
    rounding. The law of `Source.gaussian`, not the same draws.

    **Guarantee** none by itself: adding this to a value leaves that value's traces in the low bits.
    Use `add_gaussian_` for what is released.

    >>> import torch; from privet.noise import seeded
    >>> x = torch.empty(100_000, dtype=torch.float64)
    >>> round(float(gaussian_(x, 2.0, seeded(0)).std()), 1)
    2.0
    """
    scale = _check.positive("scale", scale)
    for part, noise in _parts(_flat(tensor), source):
        np.multiply(noise, scale, out=noise)
        part[:] = noise
    return tensor


def add_gaussian_(tensor: torch.Tensor, scale: float, source: Source) -> torch.Tensor:
    """Add normal noise of this scale on the public grid, in place; returns the tensor.

    float64: value and noise are rounded to g = `grid.spacing(scale)` and added exactly (see
    `privet.noise.grid`). float32: the sum of value and noise, computed in float64, is rounded to
    the coarser c = `grid.spacing(scale, bits=grid.BITS_FLOAT32)`. Either way the result depends on
    value and noise only through the sum of the noise and the value (rounded to g if float64).
    Values are held within 2^50 grid steps.

    Rounding to multiples of g is addition of M = 1.5 2^52 g: float64 numbers within 2^51 g of M are
    the multiples of g there. So (v + M) is round_g(v) + M, adding the noise n makes it
    round_g(round_g(v) + n) + M, and M is taken away exactly.

    **Guarantee** that of the ideal Gaussian mechanism at sensitivity
    `grid.l2_after_rounding(sensitivity, dimension=max(2, tensor.numel()),
    step=grid.spacing(scale))`: halves go to even here, and one coordinate has no better bound.

    **Assumes** the tensor is finite and has the sensitivity that the caller declares; not checked.
    """
    flat = _flat(tensor)
    narrow = flat.dtype == np.float32
    step = grid.spacing(scale, bits=grid.BITS_FLOAT32 if narrow else grid.BITS)
    limit, middle = LARGEST * step, _MIDDLE * step
    if narrow:
        limit = min(limit, float(np.finfo(np.float32).max))
    add = _add_narrow if narrow else _add_wide
    for part, noise in _parts(flat, source):
        add(part, noise, scale, limit, middle)
    return tensor


def make_ready() -> None:
    """Compile the loops now, so that what can fail there fails before a budget is charged."""
    for dtype in (torch.float32, torch.float64):
        add_gaussian_(torch.zeros(8, dtype=dtype), 1.0, seeded(0))


@compiled
def _add_narrow(part: Any, noise: Floats, scale: float, limit: float, middle: float) -> None:
    for i in range(len(part)):
        value = min(max(np.float64(part[i]), -limit), limit)
        part[i] = np.float32(((value + noise[i] * scale) + middle) - middle)


@compiled
def _add_wide(part: Floats, noise: Floats, scale: float, limit: float, middle: float) -> None:
    for i in range(len(part)):
        value = min(max(part[i], -limit), limit)
        part[i] = ((value + middle) + noise[i] * scale) - middle


def _flat(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.dtype not in (torch.float64, torch.float32):
        raise InvalidArgument("tensor", tensor.dtype, "of type float64 or float32")
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise InvalidArgument("tensor", tensor.stride(), "contiguous and on the CPU")
    flat: NDArray[Any] = tensor.detach().view(-1).numpy()
    return flat


def _parts(flat: NDArray[Any], source: Source) -> Iterator[tuple[NDArray[Any], Floats]]:
    """Cache-sized parts of an array, each with its normal draws (the same memory every time)."""
    for chunk in range(0, len(flat), CHUNK):
        bulk, end = source.stream.bulk(), min(chunk + CHUNK, len(flat))
        for start in range(chunk, end, BLOCK):
            part = flat[start : min(start + BLOCK, end)]
            yield part, _workspace.draw(bulk, len(part))


class _Workspace(threading.local):
    """Buffers of a thread, kept: fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self.words = np.empty(BLOCK + BLOCK // 32, dtype=np.uint64)
        self.noise = np.empty(BLOCK)
        self.open = np.zeros(BLOCK, dtype=np.bool_)

    def draw(self, bulk: Bulk, n: int) -> Floats:
        """n standard normal draws, in memory that the next call overwrites."""
        whole = -(-n // 8) * 8
        used = self.words[: whole + BLOCK // 32]
        words, spare = used[:whole], used[whole:]
        noise, unsettled = self.noise[:whole], self.open[:whole]
        bulk.fill(used)
        candidates(words, noise, unsettled)
        reached = 0
        while (reached := settle(words, spare, noise, unsettled, reached)) < whole:
            bulk.fill(spare)
        return noise[:n]


_workspace = _Workspace()
