"""The same noise written straight into torch tensors, fast; the only module that needs torch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from privet import _check
from privet.errors import InvalidArgument
from privet.noise import grid
from privet.noise.continuous import BLOCK, LOW_63, pieces, small
from privet.noise.source import Source
from privet.noise.stream import Stream

_LARGEST = 2.0**52


def gaussian_(tensor: torch.Tensor, scale: float, source: Source) -> torch.Tensor:
    """Fill a contiguous float64 or float32 tensor with normal noise; returns it.

    The transform of `privet.noise.continuous.gaussian`, from the same bits, with torch's vectorised
    functions: always computed in float64 and with the whole tail, float32 being a last rounding.

    **Guarantee** none by itself: adding this to a value leaves that value's traces in the low bits.
    Use `add_gaussian_` for what is released.

    >>> import torch; from privet.noise import seeded
    >>> x = torch.empty(100_000, dtype=torch.float64)
    >>> round(float(gaussian_(x, 2.0, seeded(0)).std()), 1)
    2.0
    """
    scale = _check.positive("scale", scale)
    flat = _flat(tensor)
    work = _Workspace(flat.numel())
    for stream, part in _parts(flat, source.stream):
        if part.dtype == torch.float64 and part.numel() % 2 == 0:
            work.normal(stream, part, scale)
        else:
            part.copy_(work.normal(stream, work.padded(part), scale)[: part.numel()])
    return tensor


def add_gaussian_(tensor: torch.Tensor, scale: float, source: Source) -> torch.Tensor:
    """Add normal noise of this scale on the public grid, in place; returns the tensor.

    Value and noise are rounded to `grid.spacing(scale)` and added exactly (see
    `privet.noise.grid`); values are held within 2^52 steps. A float32 tensor is then rounded to the
    coarser float32 grid.

    **Guarantee** that of the ideal Gaussian mechanism at sensitivity
    `grid.l2_after_rounding(sensitivity, dimension=tensor.numel(), step=grid.spacing(scale))`.

    **Assumes** the tensor is finite and has the sensitivity that the caller declares; not checked.
    """
    step = grid.spacing(scale)
    coarse = grid.spacing(scale, bits=grid.BITS_FLOAT32)
    flat = _flat(tensor)
    work = _Workspace(flat.numel())
    for stream, part in _parts(flat, source.stream):
        noise = work.normal(stream, work.padded(part), scale / step)[: part.numel()].round_()
        value = work.value[: part.numel()].copy_(part).div_(step).round_()
        value.clamp_(-_LARGEST, _LARGEST).add_(noise)
        if part.dtype == torch.float32:
            value.mul_(step / coarse).round_().mul_(coarse)
        else:
            value.mul_(step)
        part.copy_(value)
    return tensor


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in (torch.float64, torch.float32):
        raise InvalidArgument("tensor", tensor.dtype, "of type float64 or float32")
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise InvalidArgument("tensor", tensor.stride(), "contiguous and on the CPU")
    return tensor.detach().view(-1)


def _parts(flat: torch.Tensor, stream: Stream) -> Iterator[tuple[Stream, torch.Tensor]]:
    """Cache-sized parts of a tensor, each with the stream that its noise comes from."""
    for own, start, stop in pieces(stream, flat.numel()):
        for i in range(start, stop, BLOCK):
            yield own, flat[i : min(i + BLOCK, stop)]


class _Workspace:
    """Buffers used for block after block, since fresh memory costs more than the arithmetic."""

    def __init__(self, size: int) -> None:
        half = (min(size, BLOCK) + 1) // 2
        self.words = np.empty(2 * half, dtype=np.uint64)
        self.radius = torch.empty(half, dtype=torch.float64)
        self.angle = torch.empty(half, dtype=torch.float64)
        self.out = torch.empty(2 * half, dtype=torch.float64)
        self.value = torch.empty(2 * half, dtype=torch.float64)

    def padded(self, part: torch.Tensor) -> torch.Tensor:
        """A float64 buffer as long as the part, or one longer to make it even."""
        return self.out[: part.numel() + part.numel() % 2]

    def normal(self, stream: Stream, out: torch.Tensor, scale: float) -> torch.Tensor:
        """Box and Muller: the first half r cos theta, the second r sin theta; an even length."""
        half = out.numel() // 2
        stream.fill(self.words[: 2 * half])
        words = torch.from_numpy(self.words.view(np.int64))
        r, theta = self.radius[:half], self.angle[:half]
        magnitude = words[:half].bitwise_and_(int(LOW_63))
        r.copy_(magnitude)
        where, value = small(stream, magnitude.numpy())
        r.numpy()[where] = value
        r.mul_(2.0**-63).log_().mul_(-2.0).sqrt_().mul_(scale)
        theta.copy_(words[half : 2 * half]).mul_(math.pi * 2.0**-63)
        torch.cos(theta, out=out[:half])
        torch.sin(theta, out=out[half:])
        out.view(2, half).mul_(r)
        return out
