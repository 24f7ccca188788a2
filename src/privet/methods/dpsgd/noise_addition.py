"""The one place of DP-SGD where something private becomes public: a clipped sum with its noise."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from privet import premises
from privet.bounds import Bounded
from privet.bounds.clip import Sensitivity
from privet.mechanisms import Gaussian, transcript
from privet.methods.dpsgd.summing import EngineSummation
from privet.noise import Source
from privet.noise.tensor import Places, add_gaussian_, add_noise_


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
    exact = flat.double().numpy().copy() if transcript.now.get() else None
    scale = add_noise_(
        flat,
        sensitivity=sensitivity,
        noise_multiplier=noise_multiplier,
        source=source,
        places=places,
    )
    if exact is not None:
        out = transcript.note(
            "clipped sum",
            exact,
            flat.double().numpy(),
            sensitivity=sensitivity,
            log_ratio=partial(transcript.gaussian_log_ratio, scale=scale),
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
    value = Bounded(
        value=np.array(within - 0.5 * examples),
        add_remove=half,
        replace_one=whole,
        premise=premises.bound("each example counts for -1/2 or 1/2"),
        spacing=0.5,
    )
    return float(Gaussian(scale=scale).release(value, rng=source))
