"""Normal noise written straight into torch tensors, fast; the only module that needs torch."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import numpy as np
import torch

from privet import _check
from privet.errors import InvalidArgument
from privet.noise import grid
from privet.noise.source import Source
from privet.noise.stream import Stream
from privet.noise.tail import BODY, tail

BLOCK = 31 * 1024
"""Outputs made at a time: they fit the cache, and torch does not wake other threads below 2^15."""
CHUNK = 1024 * BLOCK
"""Outputs made from one key."""
LARGEST = 2.0**50
"""Values are held within this number of grid steps: at least 2^23 standard deviations."""
_MIDDLE = 1.5 * 2.0**52
_FROM_WORD = 2.0**-63 * BODY
_SQRT2 = math.sqrt(2.0)


def gaussian_(tensor: torch.Tensor, scale: float, source: Source) -> torch.Tensor:
    """Fill a contiguous float64 or float32 tensor with normal noise; returns it.

    By inversion, sqrt(2) erfinv(u) with a tail of its own (`privet.noise.tail`), always computed in
    float64, float32 being a last rounding. The law of `Source.gaussian`, not the same draws.

    **Guarantee** none by itself: adding this to a value leaves that value's traces in the low bits.
    Use `add_gaussian_` for what is released.

    >>> import torch; from privet.noise import seeded
    >>> x = torch.empty(100_000, dtype=torch.float64)
    >>> round(float(gaussian_(x, 2.0, seeded(0)).std()), 1)
    2.0
    """
    scale = _check.positive("scale", scale)
    for part, noise, _ in _parts(_flat(tensor), source.stream):
        part.copy_(noise.mul_(scale * _SQRT2))
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
    `grid.l2_after_rounding(sensitivity, dimension=tensor.numel(), step=grid.spacing(scale))`.

    **Assumes** the tensor is finite and has the sensitivity that the caller declares; not checked.
    """
    flat = _flat(tensor)
    narrow = flat.dtype == torch.float32
    step = grid.spacing(scale, bits=grid.BITS_FLOAT32 if narrow else grid.BITS)
    limit, middle = LARGEST * step, _MIDDLE * step
    if narrow:
        limit = min(limit, torch.finfo(torch.float32).max)
    for part, noise, value in _parts(flat, source.stream):
        value.copy_(part.clamp_(-limit, limit))
        if not narrow:
            value.add_(middle)
        value.add_(noise, alpha=scale * _SQRT2)
        if narrow:
            value.add_(middle)
        part.copy_(value.sub_(middle))
    return tensor


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in (torch.float64, torch.float32):
        raise InvalidArgument("tensor", tensor.dtype, "of type float64 or float32")
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise InvalidArgument("tensor", tensor.stride(), "contiguous and on the CPU")
    return tensor.detach().view(-1)


def _parts(
    flat: torch.Tensor, stream: Stream
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Cache-sized parts of a tensor: (part, noise over sqrt(2) in float64, a float64 buffer).

    Noise and buffer are the same memory part after part.
    """
    size = min(flat.numel(), BLOCK)
    work = _workspace
    words, drawn = work.words[: size + size % 2], work.noise.numpy()
    bits, noise, value = work.bits[:size], work.noise[:size], work.value[:size]
    for chunk in flat.split(CHUNK):
        where, far = tail(stream, chunk.numel())
        far /= _SQRT2
        ends = np.searchsorted(where, np.arange(0, chunk.numel() + BLOCK, BLOCK)).tolist()
        where %= BLOCK
        bulk = stream.bulk()
        for part, first, end in zip(chunk.split(BLOCK), ends, ends[1:], strict=False):
            if part.numel() < size:  # only the last
                size = part.numel()
                words, bits = words[: size + size % 2], bits[:size]
                noise, value = noise[:size], value[:size]
            bulk.fill(words)
            noise.copy_(bits).mul_(_FROM_WORD).erfinv_()
            drawn[where[first:end]] = far[first:end]
            yield part, noise, value


class _Workspace(threading.local):
    """Buffers of a thread, kept: fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self.words = np.empty(BLOCK, dtype=np.uint64)
        self.bits = torch.from_numpy(self.words.view(np.int64))
        self.noise, self.value = (torch.empty(BLOCK, dtype=torch.float64) for _ in range(2))


_workspace = _Workspace()
