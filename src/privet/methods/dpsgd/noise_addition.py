"""Where noise is added: the one place of DP-SGD in which something private becomes public.

How far one record moves the sum of a step *as computed* is known from public facts alone; theorem
and proof are in docs/theory/summation.md. Symbols: C the clipping bound, u the unit roundoff, m the
examples of a micro-batch, N the most records that a run is made for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor

from privet import premises
from privet.gradients.rounding import (
    BLOCK_IMAGES,
    BLOCK_PIXELS,
    BLOCK_ROWS,
    UNIT,
    any_order,
    any_order_of_pixels,
    in_sequence,
)
from privet.guarantee import Adjacency, Premise
from privet.mechanisms import GaussianMechanism, log_density_ratio, release_transcript
from privet.noise import Source
from privet.noise.torch_noise import Places, add_gaussian_, add_noise_
from privet.sensitivity import BoundedValue
from privet.sensitivity.bounded_value import Sensitivity

LARGEST_MICRO_BATCH = 4096
"""Most examples of a micro-batch chosen by shapes: longer sums leave less room for rounding."""
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


def with_rounding(sensitivity: float, summation: EngineSummation) -> float:
    """How far one example moves the sum *as computed*: C (1 + E), proved."""
    return float(sensitivity) * (1.0 + summation.room())


def release_sum_(
    flat: Tensor,
    *,
    sensitivity: float,
    noise_multiplier: float,
    source: Source,
    rate: float = 1.0,
    places: Places | None = None,
) -> float:
    """Add the noise to a clipped sum, in place; returns its standard deviation.

    With `places` this is one process's part of the sum; the others release theirs. Each draws the
    noise of its own numbers: a secret source only these, a seeded one, which all processes share,
    all of them, so that every number gets the noise that it would get in one process.

    **Guarantee**: the sum (of all parts together) is then a Gaussian release with this noise
    multiplier.

    **Assumes** that one example moves the sum by at most `sensitivity`: the engine clips to C, less
    a relative 2e-6 that covers rounding of norms and weights, and `with_rounding` makes room for
    the rounding of the sum; docs/theory/summation.md proves both.
    """
    exact = flat.double().numpy().copy() if release_transcript.active_transcript.get() else None
    scale = add_noise_(
        flat,
        sensitivity=sensitivity,
        noise_multiplier=noise_multiplier,
        source=source,
        places=places,
    )
    if exact is not None:
        out = release_transcript.record_release(
            "clipped sum",
            exact,
            flat.double().numpy(),
            sensitivity=sensitivity,
            log_ratio=partial(log_density_ratio.gaussian_log_ratio, scale=scale),
            rate=rate,
        )
        flat.copy_(torch.from_numpy(out))
    return scale


def make_ready(source: Source) -> None:
    """Compile the loops now, so that what can fail there fails before a budget is charged."""
    for dtype in (torch.float32, torch.float64):
        add_gaussian_(torch.zeros(8, dtype=dtype), 1.0, source)


def release_count(within: int, examples: int, *, scale: float, source: Source) -> float:
    """The sum of (b_i - 1/2) with Gaussian noise; b_i says that example i was not clipped.

    >>> from privet.noise import seeded
    >>> abs(release_count(90, 100, scale=0.1, source=seeded(0)) - 40.0) < 1.0
    True
    """
    half, whole = Sensitivity(l1=0.5, l2=0.5), Sensitivity(l1=1.0, l2=1.0)
    value = BoundedValue(
        value=np.array(within - 0.5 * examples),
        add_remove=half,
        replace_one=whole,
        premise=premises.bound("each example counts for -1/2 or 1/2"),
        spacing=0.5,
    )
    return float(GaussianMechanism(scale=scale).release(value, rng=source))
