"""How far one record moves the sum of a step *as computed*, from public facts alone.

The theorem and its proof are in docs/theory/summation.md. Symbols: C the clipping bound, u the unit
roundoff, m the examples of a micro-batch, N the most records that a run is made for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch

from privet import premises
from privet.guarantee import Adjacency, Premise
from privet.nets.per_example.rounding import (
    BLOCK_IMAGES,
    BLOCK_PIXELS,
    BLOCK_ROWS,
    UNIT,
    any_order,
    any_order_of_pixels,
    in_sequence,
)

LARGEST_MICRO_BATCH = 4096
"""Most examples of a micro-batch, unless told: longer sums leave less room for rounding."""
FIRST_MICRO_BATCH = 32
"""Examples of the very first micro-batch, where the size is to follow from the model's shapes."""


@final
@dataclass(frozen=True, kw_only=True)
class EngineSummation:
    """Per-example gradients added up in float64; outer products in float32 blocks where they may.

    Where a record keeps its place when its neighbour is gone (zero-out, replace-one), all float32
    blocks but its own are the same on both sides. Under add-remove everybody may shift into another
    block, so everything is added up in float64.

    >>> some = EngineSummation(relation=Adjacency.ZERO_OUT, records=60_000, micro_batch=64)
    >>> round(some.room(), 5)
    0.00029
    >>> moved = EngineSummation(relation=Adjacency.ADD_REMOVE, records=2**20, micro_batch=64)
    >>> moved.room() < 1e-5
    True
    """

    relation: Adjacency
    records: int
    micro_batch: int
    processes: int = 1
    dtype: torch.dtype = torch.float32
    convolutions: bool = False
    alone: bool = False

    @property
    def wide(self) -> bool:
        """Whether products of matrices must be in float64."""
        return self.relation is Adjacency.ADD_REMOVE

    def room(self) -> float:
        """E with ||S - S'|| <= C (1 + E) for the computed sums S, S' of neighbours.

        2 (E of one float32 block + E of the float64 sums): once for each neighbour.
        """
        block = min(BLOCK_ROWS, self.micro_batch, self.records)
        unit, inside = UNIT[self.dtype], 0.0
        if not self.wide:
            inside = any_order(block, unit)
            if self.convolutions:
                images = any_order_of_pixels(BLOCK_PIXELS, min(BLOCK_IMAGES, block), unit)
                inside = math.hypot(inside, images)
        calls = -(-self.records // block) + 2
        additions = min(self.micro_batch, self.records) + calls + self.processes + 4
        return 2.0 * (inside + in_sequence(additions, self.records, UNIT[torch.float64]))

    @property
    def premises(self) -> tuple[Premise, ...]:
        """What `room` rests on."""
        return (
            premises.ROUNDED_SUM,
            premises.COMPUTED_ALONE if self.alone else premises.SAME_IN_COMPANY,
        )
