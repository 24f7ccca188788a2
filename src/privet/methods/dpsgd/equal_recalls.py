"""The shift of logits under which rare and frequent classes are found equally often, measured.

To serve classes alike, probabilities are divided by the declared shares p_k of the classes:
s log(1 / p_k) is added to logit k, with s = 1 where probabilities are right. Clipping makes them
wrong: a record of a rare class, which pulls hardest, is cut most. So s is measured. Each record
says for four values of s whether the head is right: +-1/2, times a public weight of its class,
positive for rare ones, that makes classes weigh alike. Summed over records these answers are zero
where recall does not depend on how frequent a class is, and they grow with s. The sum is released,
a part of the budget paid for it, and s is the most likely value under a prior around 1: few records
decide little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet import tuned_defaults
from privet.methods.dpsgd.confidence_temperature import through
from privet.methods.dpsgd.linear_head import Examples, exact_logits, rows_at_a_time

# Four answers of +-1/2 make a vector of length 1. Recalls between them are interpolated.
SHIFTS = (0.5, 1.0, 1.5, 2.0)
_GRID = np.linspace(0.0, 3.0, 121)
_SHAPE = 0.003
"""How far straight lines between four shifts may be off, as a difference of recalls."""


def rarity(prior: Sequence[float]) -> NDArray[np.float64]:
    """The public weight of each class: of either sign, at most 1, zero where all are as frequent.

    A class of share p_k weighs 1 / p_k, times how much rarer than others it is, on a log scale.

    >>> rarity([0.75, 0.25]).round(3).tolist(), rarity([0.5, 0.5]).tolist()
    ([-0.333, 1.0], [0.0, 0.0])
    """
    p = np.asarray(prior, dtype=np.float64)
    weight = (-np.log(p) + np.log(p).mean()) / p
    return np.asarray(weight / max(float(np.abs(weight).max()), 1e-300))


@torch.no_grad()
def recall_rows(weight: Tensor, examples: Examples, prior: Sequence[float]) -> Tensor:
    """Whether the head is right at every shift, weighted: a vector of length at most 1 a record.

    A function of that record alone; zero for a null one and for one that is not finite.
    """
    size = rows_at_a_time(examples[0].shape[1])
    by_class = torch.from_numpy(rarity(prior))
    offset = torch.from_numpy(-np.log(np.asarray(prior, dtype=np.float64)))[:, None]
    parts = []
    for some in zip(*(t.split(size) for t in examples), strict=True):
        y, scales, logits = some[1], some[3], exact_logits(weight, some)
        own = torch.arange(len(y))
        moved = [logits + s * offset for s in SHIFTS]
        right = [(z[y, own] == z.amax(0)).double() - 0.5 for z in moved]
        v = torch.stack(right, dim=1) * by_class[y][:, None]
        bad = (scales == 0.0) | ~logits.isfinite().all(0)
        parts.append(v.masked_fill(bad[:, None], 0.0))
    return torch.cat(parts)


def shift(mean: NDArray[np.float64], *, prior: Sequence[float], noise: float) -> float:
    """The s of equal recalls, from the mean of `recall_rows` with this noise on each number.

    >>> half = 0.25  # of what a difference of recalls of 1 makes of the mean, for two classes
    >>> seen = half * np.array([-0.2, -0.1, 0.0, 0.1])  # the rare class catches up at s = 1.5
    >>> round(shift(seen, prior=[0.75, 0.25], noise=1e-6), 2)
    1.5
    >>> round(shift(seen, prior=[0.75, 0.25], noise=1.0), 2)
    1.0
    """
    off = through(np.asarray(SHIFTS), np.asarray(mean), _GRID)
    one = float(np.abs(np.asarray(prior) * rarity(prior)).max())  # of a recall, in these units
    variance = noise**2 + (_SHAPE * max(one, 1e-300)) ** 2
    far = (_GRID - 1.0) / tuned_defaults.SHIFT_SPREAD
    return float(_GRID[np.argmin(off**2 / variance + far**2)])


def moved_by(prior: Sequence[float], s: float) -> NDArray[np.float64]:
    """What is added to the logits: s log(1/p_k)."""
    return np.asarray([-s * math.log(p) for p in prior])
