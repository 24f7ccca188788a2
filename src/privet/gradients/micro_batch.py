"""How many examples are run at a time, from shapes alone."""

from __future__ import annotations

from privet.gradients.norms_and_sum import KEEP_BYTES
from privet.gradients.tape import Tape

# All sizes were measured on one core of an AMD EPYC with `python -m benchmarks.dpsgd`: the largest
# input or output of a layer should fit the caches, and a pass has a price of its own.
_LARGEST_ACTIVATION_BYTES = 8 * 2**20
# So many examples may take twice that: with fewer the price of a pass is not shared.
_FEW = 4
# From this size of a row on (an image's worth), more than 64 rows are no faster.
_IMAGE_BYTES, _MICRO_BATCH_OF_IMAGES = 16 * 2**10, 64
# Per-example gradients of all layers together, and, in deep networks, of a layer on average.
_ALL_INSTANCES_BYTES, _INSTANCES_PER_LAYER_BYTES = 176 * 2**20, 5 * 2**20


def suitable_micro_batch(tape: Tape, views: int) -> int:
    """The power of two of examples whose largest layer input or output is about 8 MB.

    Up to four may have 16 MB. At most 64 where a row is an image's worth (16 kB) or more, and no
    more than what lets every layer keep its per-example gradients where it has to instantiate them,
    and all layers together 176 MB of them, or (a multiple of four) 5 MB a layer in deep networks,
    where a pass costs more by itself (transformers). It is a function of the shapes on the tape,
    which may be of no rows.
    """
    largest = max(1, tape.largest_row * views)
    size = _power_of_two(_LARGEST_ACTIVATION_BYTES // largest)
    size = max(size, min(_FEW, _power_of_two(2 * _LARGEST_ACTIVATION_BYTES // largest)))
    size = min(size, _MICRO_BATCH_OF_IMAGES) if largest >= _IMAGE_BYTES else size
    instances = [s.instance_size(a, y, views) for s, a, y in tape.shapes]
    each = _power_of_two(KEEP_BYTES // max(1, 4 * max(instances, default=0)))
    layers, instance = sum(size > 0 for size in instances), max(1, 4 * sum(instances))
    deep = _INSTANCES_PER_LAYER_BYTES * layers // instance // 4 * 4
    return min(size, each, max(_power_of_two(_ALL_INSTANCES_BYTES // instance), deep))


def _power_of_two(at_most: int) -> int:
    return 1 << max(0, at_most.bit_length() - 1)
