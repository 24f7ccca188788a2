"""What suits a processor: the memory layout of a model, and how many examples at a time."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

import torch
from torch import Tensor, nn

from privet.nets.per_example.measured import KEEP_BYTES
from privet.nets.per_example.tape import Tape

_MICRO_BATCH_BYTES = 8 * 2**20
_FEW = 4
_MICRO_BATCH_OF_IMAGES = 64
_KEPT_IN_ALL_BYTES, _KEPT_A_LAYER_BYTES = 176 * 2**20, 5 * 2**20
_IMAGE_BYTES = 16 * 2**10
_TRIM_FROM, _MAP_FROM = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_MAPPED_BYTES, _KEPT_BYTES = 32 * 2**20, 2**30


def micro_batch(tape: Tape, views: int) -> int:
    """The power of two of examples whose largest layer input or output is about 8 MB.

    Up to four may have 16 MB. At most 64 where a row is an image's worth (16 kB) or more, and no
    more than what lets every layer keep its per-example gradients where it has to instantiate them,
    and all layers together 176 MB of them, or (a multiple of four) 5 MB a layer in deep networks,
    where a pass costs more by itself (transformers); all figures were measured. It is a function of
    the shapes on the tape, which may be of no rows.
    """
    largest = max(1, tape.largest_row * views)
    size = _power_of_two(_MICRO_BATCH_BYTES // largest)
    size = max(size, min(_FEW, _power_of_two(2 * _MICRO_BATCH_BYTES // largest)))
    size = min(size, _MICRO_BATCH_OF_IMAGES) if largest >= _IMAGE_BYTES else size
    instances = [s.instance_size(a, y, views) for s, a, y in tape.shapes]
    each = _power_of_two(KEEP_BYTES // max(1, 4 * max(instances, default=0)))
    layers, instance = sum(size > 0 for size in instances), max(1, 4 * sum(instances))
    deep = _KEPT_A_LAYER_BYTES * layers // instance // 4 * 4
    return min(size, each, max(_power_of_two(_KEPT_IN_ALL_BYTES // instance), deep))


def _power_of_two(at_most: int) -> int:
    return 1 << max(0, at_most.bit_length() - 1)


def layouts(model: nn.Module) -> list[tuple[int, torch.memory_format]]:
    """Which inputs, by their number of dimensions, are better in another layout."""
    kinds = {type(m) for m in model.modules()}
    out = []
    if kinds & {nn.Conv2d, nn.ConvTranspose2d}:
        out.append((4, torch.channels_last))
    if kinds & {nn.Conv3d, nn.ConvTranspose3d}:
        out.append((5, torch.channels_last_3d))
    return out


def arranged(
    tensors: tuple[Tensor, ...], wanted: list[tuple[int, torch.memory_format]]
) -> tuple[Tensor, ...]:
    """The tensors in the layouts that are wanted for their number of dimensions."""
    for dimensions, layout in wanted:
        tensors = tuple(
            t.contiguous(memory_format=layout) if t.dim() == dimensions else t for t in tensors
        )
    return tensors


def keep_freed_memory() -> None:
    """Make the allocator keep what a pass frees for the next one, for the rest of the process.

    glibc maps large blocks by themselves and gives the end of its heap back to the system, so that
    every step pays for fresh pages: a tenth of a step. Now it takes from its heap what is below
    32 MB, the most that it comes to by itself: per-example gradients lie where activations lay
    before. Larger blocks are still given back, since those of other code leave holes in a heap
    that nothing fits into. Elsewhere this does nothing.
    """
    if sys.platform != "linux":
        return
    with suppress(AttributeError, OSError):  # another C library, or none that can be asked
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MAP_FROM, _MAPPED_BYTES)
        mallopt(_TRIM_FROM, _KEPT_BYTES)
