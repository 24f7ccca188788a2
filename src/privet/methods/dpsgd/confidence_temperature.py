"""The softmax temperature of a linear head, from noisy means of its confidence and correctness.

Clipping makes logits too large: where a share p of like records has a label, clipped gradients
balance at a probability far beyond p. Noise makes them too large too, and few steps too small. So
what is right is measured: for each record whether the head is right, and its confidence at four
temperatures, each less the middle of its range, so that their vector v has a public length. The sum
of v over records is released, with a quarter of what the mean of the rows cost alone. Where mean
confidence meets accuracy lies the temperature. With few records both are uncertain: the answer is
the most likely one under a prior on its logarithm that generated tables gave (`tuned_defaults`).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet import tuned_defaults
from privet.methods.dpsgd.linear_head import Examples, exact_logits, exp, rows_at_a_time, total

# Confidence is released at four temperatures a factor of two apart and interpolated between them
# (_SHAPE says how well); each further one would add to the length of v, and so to the noise.
TEMPERATURES = (0.5, 1.0, 2.0, 4.0)
# Temperatures that are tried, from half the least to twice the largest, in steps of 3%.
_GRID = np.linspace(math.log(0.25), math.log(8.0), 121)
_SHAPE = 0.01
"""How far straight lines between four temperatures may be off, as a standard deviation."""


def confidence_length(outputs: int) -> float:
    """The longest v: 1/2 for being right, and half of 1 - 1/K for each confidence."""
    return math.hypot(0.5, *[_half(outputs)] * len(TEMPERATURES))


def _half(outputs: int) -> float:
    return 0.5 * (1.0 - 1.0 / outputs)


@torch.no_grad()
def confidence_rows(weight: Tensor, examples: Examples) -> Tensor:
    """v over its length for each row, a function of that row alone; zero for a null one (s_i = 0).

    A row that is not finite has logits that are not, and is zero as well.
    """
    size = rows_at_a_time(examples[0].shape[1])
    parts = zip(*(t.split(size) for t in examples), strict=True)
    return torch.cat([_confidence_part(weight, part) for part in parts])


def _confidence_part(weight: Tensor, some: Examples) -> Tensor:
    y, scales = some[1], some[3]
    logits = exact_logits(weight, some)
    shifted = logits - logits.amax(0)
    right = shifted[y, torch.arange(len(y))] == 0.0
    middle = 1.0 - _half(len(logits))
    sure = [1.0 / total(exp(shifted / t)) - middle for t in TEMPERATURES]
    v = torch.stack([right.double() - 0.5, *sure], dim=1) / confidence_length(len(logits))
    return v.masked_fill((scales == 0.0)[:, None] | ~v.isfinite().all(1, keepdim=True), 0.0)


def temperature(mean: NDArray[np.float64], *, outputs: int, noise: float) -> float:
    """What to divide logits by, from the mean of `confidence_rows` with this noise on each number.

    Records that count for nothing pull both means to their middles; there should be few.

    >>> v = [0.75 - 0.5, 0.99 - 0.75, 0.9 - 0.75, 0.75 - 0.75, 0.6 - 0.75]
    >>> round(temperature(np.array(v) / confidence_length(2), outputs=2, noise=0.0), 1)
    2.0
    >>> round(temperature(np.array(v) / confidence_length(2), outputs=2, noise=10.0), 1)
    1.8
    """
    right, *sure = mean * confidence_length(outputs) + [
        0.5,
        *[1.0 - _half(outputs)] * len(TEMPERATURES),
    ]
    at = partial(through, np.log(TEMPERATURES), np.array(sure))
    off = np.clip(at(_GRID), 1.0 / outputs, 1.0) - min(max(right, 1.0 / outputs), 1.0)
    variance = 2.0 * (noise * confidence_length(outputs)) ** 2 + _SHAPE**2
    far = (_GRID - tuned_defaults.CONFIDENCE_PRIOR[0]) / tuned_defaults.CONFIDENCE_PRIOR[1]
    return float(np.exp(_GRID[np.argmin(off**2 / variance + far**2)]))


def through(
    x: NDArray[np.float64], y: NDArray[np.float64], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Straight lines through points, with half the last slope beyond them."""
    first, last = (y[1] - y[0]) / (x[1] - x[0]), (y[-1] - y[-2]) / (x[-1] - x[-2])
    beyond = first * np.minimum(at - x[0], 0.0) + last * np.maximum(at - x[-1], 0.0)
    return np.asarray(np.interp(at, x, y) + 0.5 * beyond)
